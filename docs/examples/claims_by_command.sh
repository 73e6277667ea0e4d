# Claims in Parquet by the command line alone: run, look at page.html, score new policies.
# claims.parquet has the columns score, count and exposure; new.parquet needs a score alone.
set -e
python -c "import soc_pymc as soc; soc.simulation.s1(4000, seed=0).to_parquet('claims.parquet')"
python -c "import soc_pymc as soc; soc.simulation.s1(50, seed=1).to_parquet('new.parquet')"
soc-pymc run claims.parquet --score score --count count --exposure exposure \
    --out posteriors.parquet --keep kept --page page.html
soc-pymc posteriors kept/fit.nc new.parquet --score-only --out new_posteriors.parquet

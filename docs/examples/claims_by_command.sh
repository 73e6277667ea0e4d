# Claims in Parquet by the command line alone: run, look at page.html, score new policies.
soc-pymc run claims.parquet --score score --count count --exposure exposure \
    --out posteriors.parquet --keep kept --page page.html
soc-pymc posteriors kept/fit.nc new.parquet --score-only --out new_posteriors.parquet

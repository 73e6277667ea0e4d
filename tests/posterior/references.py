"""Posteriors and predictive distributions by brute force, from the draws of a fit.

A single family's prior is matched to the mean and variance that `calibration_curves` gives for
each draw, updated in closed form with SciPy's distributions, and averaged over draws. The prior of
a mixture, or one with a spike at zero, is the density of nearly noiseless outcomes on a grid of
theta, draw by draw; the rest is quadrature.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import ibis
import numpy as np
import pandas as pd
from scipy import special

import soc_pymc as soc
from soc_pymc import prior_table
from soc_pymc.data.items import CROSS
from soc_pymc.fits import with_draws
from soc_pymc.posterior.predictive import posterior_of
from tests.examples import CASES, ROLES, SINGLE_FAMILIES
from tests.family_records import RECORDS, prior_parameters, updated_parameters

CLOSED_FORM = (*SINGLE_FAMILIES, "groups", "exposure", "five_steps")
ON_A_GRID = tuple(name for name in CASES if name not in CLOSED_FORM)
QUICK = (*CLOSED_FORM, "normal_mixture")  # the cases that are tested by default
KINDS = {
    soc.PoissonItems: "gamma",
    soc.NormalItems: "normal",
    soc.BinomialItems: "beta",
    soc.AmountItems: "inverse_gamma",
}
QUANTILES = {"theta_q05": 0.05, "theta_q50": 0.5, "theta_q95": 0.95}
MOMENTS = ["theta_mean", "theta_sd"]
FORMS = ("parquet", "json", "sql")
COLUMNS = [*MOMENTS, *QUANTILES]
_TAILS = {"gamma": (-16.0, 5.0), "inverse_gamma": (-5.0, 16.0)}  # of log theta, about its mean
_NOISELESS = 1e10  # exposures or trials, or one over the noise sd


def kind_of(name):
    """Returns the single family with the same kind of items, such as gamma."""
    return KINDS[CASES[name].kind]


def family_of(name):
    """Returns the name of that family in `tests.family_records.RECORDS`."""
    return kind_of(name).title().replace("_", "")


def log_probability(law, outcome):
    """Returns the log density of an outcome, or of a count its log probability; without size 0."""
    return law.logpmf(outcome) if hasattr(law, "pmf") else np.nan_to_num(law.logpdf(outcome))


def some_rows(example, number):
    """Returns rows spread over the whole frame, with outcomes from certain to hardly known."""
    frame = example.frame
    return frame.iloc[:: len(frame) // number].head(number).reset_index(drop=True)


def score_items(example, frame, fit=None, **options):
    """Scores rows of an example's frame; quantiles at 5%, 50% and 95% unless others are given."""
    options = {"quantiles": tuple(QUANTILES.values()), "progress": False} | options
    return soc.item_posteriors(fit or example.fit, example.case.items(frame), **options)


def columns_of(name, frame):
    """Returns a frame's columns by role, as arrays; crossed labels of groups as one."""
    case = CASES[name]
    columns = {role: frame[c].to_numpy(dtype=float) for role, c in ROLES[case.kind].items()}
    if "group" in case.roles:
        columns["group"] = frame[case.roles["group"]].to_numpy(dtype=object)
    return columns


def row_arguments(frame, roles):
    """Returns score, outcome, size and, with groups, labels, as `prior_table.score` takes them."""
    groups = [column for role, column in roles.items() if role.startswith("group")]
    columns = [c for c in roles.values() if c not in groups]
    arguments = [frame[column].to_numpy(dtype=float) for column in columns]
    if groups:
        arguments.append([CROSS.join(map(str, labels)) for labels in frame[groups].to_numpy()])
    return arguments


def scored_in_every_form(fit, items, folder):
    """Scores items over all draws, by `item_posteriors`, by both exported files, and by SQL.

    Returns tables by form, whose items have whole numbers as `id`, and the files' paths.
    """
    options = {"progress": False}
    paths = {form: soc.export_prior(fit, Path(folder) / f"prior.{form}") for form in FORMS[:2]}
    arguments = row_arguments(items.source, items.roles)
    table = replace(items, source=ibis.memtable(items.source))
    forms = {
        "exact": soc.item_posteriors(fit, items, draws="all", **options),
        "batch": soc.item_posteriors(fit, items, **options),
        **{form: pd.DataFrame(prior_table.score(path, *arguments)) for form, path in paths.items()},
    }
    sql = soc.posterior_expression(fit, table).to_pandas()
    return forms | {"sql": sql.sort_values("id", ignore_index=True)}, paths


def hostile_sizes(frame, kind):
    """Multiplies the sizes of half of the items by exp(N(0, 4^2)); trials stay whole."""
    rng = np.random.default_rng(0)
    outcome, size = list(ROLES[kind].values())[1:]
    factor = np.where(rng.random(len(frame)) < 0.5, np.exp(rng.normal(0.0, 4.0, len(frame))), 1.0)
    sizes = frame[size] * factor
    if kind is soc.BinomialItems:
        sizes = np.maximum(np.ceil(sizes), frame[outcome])
    if kind is soc.AmountItems:
        sizes = np.ceil(sizes)
    return frame.assign(**{size: sizes})


def outcome_and_size(name, frame):
    """Returns outcomes and their exposures, noise sds or trials."""
    return tuple(columns_of(name, frame)[role] for role in list(ROLES[CASES[name].kind])[1:])


def errors_in_sd(found, exact, columns=COLUMNS):
    """Errors in posterior sd, by column; missing numbers are infinitely wrong."""
    sd = exact["theta_sd"].to_numpy()
    errors = (found[column].to_numpy(dtype=float) - exact[column].to_numpy() for column in columns)
    return {
        column: np.nan_to_num(np.abs(error) / sd, nan=np.inf)
        for column, error in zip(columns, errors, strict=True)
    }


def thinned_fit(fit, draws):
    """Returns a fit with only some of its draws, of the first chain and evenly chosen."""
    posterior = fit.data["posterior"].to_dataset()
    chosen = np.linspace(0, posterior.sizes["draw"] - 1, draws).astype(int)
    return with_draws(fit, posterior.isel(chain=[0], draw=chosen))


def widened_fit(fit, factor):
    """Returns a fit whose draws of the curves are farther from their mean by a factor."""
    posterior = fit.data["posterior"].to_dataset()
    mean = posterior.mean(("chain", "draw"))
    wide = {name: mean[name] + factor * (x - mean[name]) for name, x in posterior.items()}
    dims = {name: x.dims for name, x in posterior.items()}
    return with_draws(fit, posterior.assign({k: x.transpose(*dims[k]) for k, x in wide.items()}))


# --- closed forms --------------------------------------------------------------------------------


def prior_moments(name, fit, frame):
    """Mean and variance of theta given the score, by draw, (draws, n)."""
    by_exposure = CASES[name].prior.exposure is not None
    group = CASES[name].roles.get("group")
    parts = []
    for label, part in frame.groupby(group) if group else [(None, frame)]:
        exposure = part["exposure"] if by_exposure else None
        curves = soc.calibration_curves(fit, part["score"], group=label, exposure=exposure)
        for moment in ("mean", "variance"):
            draws = curves[moment].to_numpy().reshape(-1, len(part))
            parts.append(pd.DataFrame(draws.T, part.index).assign(moment=moment))
    table = pd.concat(parts)
    mean, variance = (
        table[table["moment"] == moment].drop(columns="moment").loc[frame.index].to_numpy().T
        for moment in ("mean", "variance")
    )
    return mean, variance


def posterior_law(name, fit, frame):
    """SciPy's distributions of theta given score and outcome, one for each draw and row."""
    family = family_of(name)
    prior = prior_parameters(family, *prior_moments(name, fit, frame))
    after = updated_parameters(family, *prior, *outcome_and_size(name, frame))
    return RECORDS[family].theta(*after)


def averaged_moments(mean, variance):
    """Mean and sd of an equal mixture over draws, by the law of total variance."""
    return mean.mean(axis=0), np.sqrt(variance.mean(axis=0) + mean.var(axis=0))


def assert_quantile(cdf, quantile, prob, slack):
    """Checks that a root of cdf(x) = prob is within `slack` of the quantile."""
    below, above = cdf(quantile - slack), cdf(quantile + slack)
    assert (below <= prob).all()
    assert (above >= prob).all()


# --- quadrature ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ThetaGrid:
    """Prior of theta at one score: by draw, probabilities of points and of theta = 0."""

    kind: str
    theta: np.ndarray  # (points,)
    weight: np.ndarray  # (draws, points)
    zero: np.ndarray  # (draws,)

    @classmethod
    def at(cls, name, fit, score, points=6001):
        """Reads the prior off the density of outcomes with hardly any noise."""
        kind = kind_of(name)
        moments = prior_moments(name, fit, pd.DataFrame({"score": [score]}))
        mean, sd = moments[0].mean(), np.sqrt(moments[1].max())
        if kind == "normal":
            theta = np.linspace(mean - 14.0 * sd, mean + 14.0 * sd, points)
            outcome, size, by_step = theta, 1.0 / _NOISELESS, np.gradient(theta)
        elif kind in _TAILS:
            log_theta = np.log(mean) + np.linspace(*_TAILS[kind], points)
            theta = np.exp(log_theta)
            outcome, size = theta * _NOISELESS, _NOISELESS
            by_step = theta * np.gradient(log_theta) * _NOISELESS
        else:
            logit = np.linspace(-20.0, 20.0, points)
            theta = special.expit(logit)
            outcome, size = np.round(theta * _NOISELESS), _NOISELESS
            by_step = theta * special.expit(-logit) * np.gradient(logit) * _NOISELESS
        columns = cls._columns(name, score, outcome, size)
        weight = np.exp(posterior_of(fit).log_density(columns)) * by_step
        zero = np.zeros(len(weight))
        if CASES[name].prior.zero:
            columns = cls._columns(name, score, np.zeros(1), size)
            zero = np.exp(posterior_of(fit).log_density(columns))[:, 0]
        return cls(family_of(name), theta, weight, zero)

    @staticmethod
    def _columns(name, score, outcome, size):
        same = np.ones(len(outcome))
        roles = list(ROLES[CASES[name].kind])
        return dict(zip(roles, (score * same, outcome, size * same), strict=True))

    def likelihood(self, outcome, size, theta):
        """Probability or density of an outcome given theta."""
        law = RECORDS[self.kind].outcome(theta, size)
        return np.exp(log_probability(law, outcome))

    def outcome_cdf(self, outcome, size, theta):
        """P(Y <= outcome) given theta."""
        return RECORDS[self.kind].outcome(theta, size).cdf(outcome)

    def density(self, outcome, size):
        """Marginal probability or density of an outcome, by draw."""
        at_zero = self.likelihood(outcome, size, 0.0)
        return self.weight @ self.likelihood(outcome, size, self.theta) + self.zero * at_zero

    def posterior(self, outcome, size):
        """Probabilities of the points, and of theta = 0, averaged over draws."""
        weight = self.weight * self.likelihood(outcome, size, self.theta)
        zero = self.zero * self.likelihood(outcome, size, 0.0)
        total = weight.sum(axis=1) + zero
        return (weight / total[:, None]).mean(axis=0), float((zero / total).mean())

    def prior_moments(self):
        """Mean and variance of theta given the score, by draw."""
        mean = self.weight @ self.theta
        return mean, self.weight @ self.theta**2 - mean**2

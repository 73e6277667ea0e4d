"""Faults that `tests.faults_plugin` plants, and the statistical tests that must then fail.

A statistical test is one whose verdict rests on simulation or on draws. Each is here under at least
one fault of the method that it is about.
"""

from dataclasses import dataclass

__all__ = ["FAULTS", "Fault"]


@dataclass(frozen=True)
class Fault:
    """A fault, and tests that must see it.

    Attributes
    ----------
    name
        Of the fault.
    patches
        Module, lines of its source, and what stands there instead.
    tests
        Test ids without ``tests/test_`` and ``.py``.
    slow
        Those of them that are marked slow.
    compiled
        Whether kernels must be compiled anew.
    """

    name: str
    patches: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()
    compiled: bool = False


def _in(module, *changes):
    """Patches of one module of the library."""
    return tuple((f"soc_pymc.{module}", old, new) for old, new in changes)


_UPDATED = 'poisson_gamma.update(*prior, columns["count"], columns["exposure"])'
_TWICE = 'poisson_gamma.update(*prior, 2 * columns["count"], 2 * columns["exposure"])'
_CURVE = "    return np.asarray(total)\n"
_SIMULATED = "theta = rng.standard_gamma(np.exp(-log_cv2)) * np.exp(log_mean + log_cv2)"

_ALL = [
    # curves
    Fault(
        "variance curve times 1.3",
        _in("curves", (_CURVE, '    return np.asarray(total + 0.26 * (curve == "variance"))\n')),
        (
            "s1::test_small",
            "s1::test_wide_bins_tell_the_truth_about_the_ends",
            "normal_cells::test_curves_of_values_are_recovered",
            "accuracy::test_fits_to_counts[Bayes]",
            "studies::test_rows_of_a_cell[gamma]",
            "studies::test_rows_of_the_normal_study[normal]",
            "five_steps::test_smooth_curves_recover_s1",
        ),
        ("s1::test_study", "choice::test_one_gamma_is_preferred_where_it_is_true"),
    ),
    Fault(
        "mean curve 15% too high",
        _in("curves", (_CURVE, '    return np.asarray(total + 0.15 * (curve == "mean"))\n')),
        (
            "terms::test_groups_curves_cover_the_truth",
            "accuracy::test_a_fit_to_values",
            "accuracy::test_fits_to_counts[five steps]",
        ),
    ),
    Fault(
        "bins shifted by one",
        _in(
            "curves",
            (
                'bin_of = np.searchsorted(constant["edge"].to_numpy(), score, side="right")\n',
                'bin_of = np.searchsorted(constant["edge"].to_numpy(), score, side="right") + 1\n',
            ),
        ),
        ("terms::test_effects_of_bins_see_a_step",),
    ),
    Fault(
        "bands from the wrong quantile",
        _in(
            "calibration",
            ("[(1 - prob) / 2, 0.5, (1 + prob) / 2]", "[(1 - prob), 0.5, prob]"),
            ("np.quantile(reach, prob", "np.quantile(reach, prob - 0.05"),
        ),
        (
            "curves::test_pointwise_bands_hold_their_share",
            "curves::test_simultaneous_bands_hold_whole_curves",
        ),
    ),
    # inference
    Fault(
        "variational draws of .7 of the width",
        _in(
            "variational",
            ("(location + noise[kept] @ factor.T)", "(location + 0.7 * noise[kept] @ factor.T)"),
        ),
        ("inference::test_an_extended_model_is_fitted",),
        (
            "inference::test_agrees_with_nuts",
            "inference::test_an_extended_model_agrees_with_nuts",
            "sbc::test_ranks_are_uniform",
            "terms::test_grouped_fits_agree_with_nuts",
            "mixture::test_variational_agrees_with_nuts",
            "normal_cells::test_agrees_with_nuts",
        ),
    ),
    Fault(
        "effects of bins drawn around 0",
        _in("effects", ("drawn = draw_effects(", "drawn = 0.0 * draw_effects(")),
        ("terms::test_effects_of_bins_see_a_step",),
        ("terms::test_effects_are_those_of_nuts",),
    ),
    # posteriors
    Fault(
        "posterior with the prior of another score",
        _in(
            "laws.gamma",
            (
                "draws = draws_at(fit, columns, self.size)",
                'draws = draws_at(fit, {**columns, "score": 1.2 * columns["score"]}, self.size)',
            ),
        ),
        ("posteriors::test_by_simulation", "posteriors::test_representative_is_close"),
    ),
    Fault(
        "own outcome used twice",
        _in(
            "laws.gamma",
            (f"ThetaMixture(*{_UPDATED})", f"ThetaMixture(*{_TWICE})"),
            (
                'poisson_gamma.update(*prior, part["count"], part["exposure"])',
                'poisson_gamma.update(*prior, 2 * part["count"], 2 * part["exposure"])',
            ),
        ),
        (
            "decisions::test_stated_probabilities_are_kept",
            "further_outcomes::test_counts_against_simulation",
        ),
    ),
    Fault(
        "E(theta|t,y) is E(theta|t)",
        _in(
            "evaluate._held_out",
            ('law.scorer((), "representative", False)(own)[0]', "given_score(fit, own)[0]"),
        ),
        ("evaluate::test_oracle_gains_most",),
    ),
    Fault(
        "variance after an outcome of half the further exposure",
        _in(
            "decisions.value",
            ("gain = variance / mean * more\n", "gain = variance / mean * more / 2\n"),
        ),
        ("decisions::test_sd_after_against_simulation",),
    ),
    # predictive distributions
    Fault(
        "negative binomial size off by one",
        _in(
            "laws.gamma",
            (_SIMULATED, _SIMULATED.replace("np.exp(-log_cv2)", "np.exp(-log_cv2) + 1")),
        ),
        (
            "checks::test_predictive_p_values_are_calibrated_on_the_truth",
            "checks::test_simulated_counts_have_the_prior_s_moments",
            "checks::test_scatter_is_weighted_by_its_own_precision",
        ),
        ("checks::test_checks_reject_no_more_than_they_should[gamma]",),
    ),
    Fault(
        "exposure squared",
        _in(
            "laws.gamma",
            (
                'return rng.poisson(columns["exposure"] * theta)',
                'return rng.poisson(columns["exposure"] ** 2 * theta)',
            ),
        ),
        (
            "checks::test_simulated_counts_have_the_prior_s_moments",
            "checks::test_predictive_p_values_are_calibrated_on_the_truth",
        ),
    ),
    Fault(
        "sd instead of variance",
        _in(
            "laws.normal",
            (
                'sd = np.sqrt(np.exp(log_variance) + columns["noise_sd"] ** 2)',
                'sd = np.sqrt(np.exp(log_variance) + columns["noise_sd"])',
            ),
        ),
        (
            "normal_law::test_simulated_values_have_the_marginals_moments",
            "normal_law::test_pit_and_dispersion_of_the_truth_and_of_too_little_variance",
        ),
        ("checks::test_checks_reject_no_more_than_they_should[normal]",),
    ),
    Fault(
        "sizes of a bin divided among scores",
        _in(
            "fit_tree",
            (
                "part = np.minimum((share * _PARTS).astype(int), _PARTS - 1)[place]",
                "part = np.argsort(np.argsort(position, kind='stable')) * _PARTS // len(position)",
            ),
        ),
        (
            "quantities_terms::test_what_exposure_explains_at_equal_scores_is_unexplained[items]",
            "quantities_terms::test_what_exposure_explains_at_equal_scores_is_unexplained[exposure]",
        ),
    ),
    Fault(
        "outcomes of twice the exposure",
        _in(
            "quantities.after",
            (
                '"exposure": table["sum_N"] / n}, n',
                '"exposure": 2.0 * table["sum_N"] / n}, n',
            ),
        ),
        ("quantities_terms::test_outcomes_add_to_score_and_exposure_both",),
    ),
    Fault(
        "components of mixtures 30% further apart",
        _in(
            "laws.mixture",
            (
                "return make(*bounded(self._fit, first, second))",
                "return make(*bounded(self._fit, first, second + 0.52))",
            ),
        ),
        slow=("headlines::test_laplace_effects",),
    ),
    Fault(
        "mixtures drawn from their mean component",
        _in(
            "laws.mixture",
            (
                "place = location[np.arange(len(score)), np.minimum(chosen, len(self._z) - 1)]",
                "place = location[np.arange(len(score)), 0 * chosen + len(self._z) // 2]",
            ),
        )
        + _in(
            "laws.bin_mixture",
            (
                "own.place[item, chosen], own.variance[item, chosen]",
                "own.place.mean(axis=1), own.variance[item, chosen]",
            ),
        ),
        (
            "mixture_law::test_simulated_outcomes_have_the_curves_moments[counts]",
            "mixture_law::test_simulated_outcomes_have_the_curves_moments[values]",
            "five_steps_mixtures::test_simulated_outcomes_have_the_laws_moments",
        ),
    ),
    # checks
    Fault(
        "PIT without randomisation",
        _in(
            "checks.pit",
            ("np.asarray(below + rng.random(len(below)) * (upto - below))", "np.asarray(upto)"),
        ),
        (
            "checks::test_pit_is_calibrated_on_the_truth",
            "arviz_checks::test_arvizs_test_finds_nothing_in_calibrated_outcomes[counts]",
            "evaluate::test_predictive_pit_is_uniform_under_the_true_prior_alone",
        ),
        ("checks::test_checks_reject_no_more_than_they_should[gamma]",),
    ),
    Fault(
        "PIT of cells from the upper ends",
        _in("checks.cells", ("below, _ = law.cdf_interval(", "_, below = law.cdf_interval(")),
        ("cell_checks::test_pit_of_cells_is_that_of_the_items",),
    ),
    Fault(
        "PIT of values from half the variance",
        _in(
            "laws.normal",
            (
                "curves = _spread_out(columns, mean, log_variance)",
                "curves = _spread_out(columns, mean, log_variance - 0.7)",
            ),
        ),
        ("arviz_checks::test_arvizs_test_finds_nothing_in_calibrated_outcomes[values]",),
    ),
    Fault(
        "p-values of too few items",
        _in(
            "checks.pit",
            ("stats.kstwo.sf(distance, n)", "stats.kstwo.sf(distance, max(n // 20, 1))"),
        ),
        (
            "checks::test_pit_is_calibrated_on_the_truth",
            "checks::test_pit_has_power_against_twice_the_variance",
            "checks::test_p_values_of_a_grid_allow_for_its_steps",
            "studies::test_pit_by_bin_finds_the_bin_that_is_off",
            "normal_law::test_pit_and_dispersion_of_the_truth_and_of_too_little_variance",
        ),
        ("checks::test_checks_find_what_is_wrong",),
    ),
    Fault(
        "distances of a grid taken for all distances",
        _in("checks.pit", ("_DISCRETE = 0.5826", "_DISCRETE = 0.0")),
        ("checks::test_p_values_of_a_grid_allow_for_its_steps",),
    ),
    Fault(
        "replicates stand for the outcomes",
        _in(
            "checks.predictive",
            (
                "observed = scatter(y, size, mean, variance)\n    zeros",
                "y = law.simulate(columns, rng)[0]\n"
                "    observed = scatter(y, size, mean, variance)\n    zeros",
            ),
        ),
        (
            "checks::test_predictive_tests_see_too_wide_a_prior",
            "normal_law::test_pit_and_dispersion_of_the_truth_and_of_too_little_variance",
        ),
        ("checks::test_checks_find_what_is_wrong",),
    ),
    Fault(
        "tail of one side",
        _in("checks.predictive", ("return min(1.0, 2.0 * tail)", "return min(1.0, tail)")),
        (
            "checks::test_predictive_p_values_are_calibrated_on_the_truth",
            "checks::test_tail_probability_is_two_sided_and_goes_beyond_the_replicates",
        ),
    ),
    Fault(
        "leave-one-out without leaving out",
        _in(
            "checks.leave_one_out",
            (
                "within[at], total[at] = -_log_mean(-each), _log_mean(each)",
                "within[at], total[at] = _log_mean(each), _log_mean(each)",
            ),
            (
                "within[worst] = _log_sum(log_weight + log_density)",
                "within[worst] = _log_mean(log_density)",
            ),
        ),
        ("comparison::test_statistics_give_arvizs_table_of_all_items",),
        ("choice::test_one_normal_is_preferred_where_it_is_true",),
    ),
    # evaluation
    Fault(
        "seed reused",
        _in(
            "evaluate.thinning",
            (
                'np.random.default_rng([whole(seed, "seed", 0), zlib.crc32(purpose.encode())])',
                "np.random.default_rng(seed)",
            ),
        ),
        (
            "evaluate::test_thinning_does_not_repeat_the_numbers_of_a_simulation[counts]",
            "evaluate::test_thinning_does_not_repeat_the_numbers_of_a_simulation[values]",
        ),
    ),
    Fault(
        "noise of a part as of the whole",
        _in(
            "evaluate.thinning",
            (
                "return y + np.sqrt((1 - fraction) / fraction) * sd * own",
                "return y + (1 - fraction) / fraction * sd * own",
            ),
        ),
        ("evaluate::test_values_are_divided_by_noise",),
    ),
    Fault(
        "standard errors without the root of the number",
        _in("evaluate.gains", ("each.std(ddof=1) * np.sqrt(len(each))", "each.std(ddof=1)"))
        + _in("evaluate._accuracy", ("/ np.sqrt(len(over))", "/ len(over)")),
        ("evaluate::test_standard_errors_cover", "accuracy::test_standard_errors"),
    ),
    Fault(
        "errors over sds",
        _in(
            "evaluate._accuracy",
            (
                '"error_ratio": (mean - theta) ** 2 / variance',
                '"error_ratio": (mean - theta) ** 2 / np.sqrt(variance)',
            ),
        ),
        (
            "accuracy::test_perfect_fit_has_no_regret",
            "accuracy::test_fits_to_counts[Bayes]",
            "accuracy::test_fits_to_counts[five steps]",
        ),
    ),
    Fault(
        "platt weighs every score alike",
        _in(
            "evaluate.baselines",
            ("weight = cells.weight * unit", "weight = np.ones(len(cells.weight)) * unit"),
        ),
        ("baselines::test_platt_errs_as_its_information_says",),
    ),
    Fault(
        "platt of counts in place of rates",
        _in("evaluate.baselines", ("sums[1] / sums[0], counts)", "sums[1], counts)")),
        ("baselines::test_platt_leaves_calibrated_scores",),
    ),
    # leakage and folds
    Fault(
        "too much noise expected",
        _in(
            "evaluate._leakage",
            (
                "    expected = own * x2 / x1\n    noise = y1 - expected",
                "    expected = own * x2 / x1\n    noise = 1.5 * (y1 - expected)",
            ),
            ("noise, share = w1 / n, 1 - 1 / n", "noise, share = 1.5 * w1 / n, 1.5 - 1.5 / n"),
        )
        + _in(
            "cells",
            ("    noise = y1 - own * size\n", "    noise = 1.5 * (y1 - own * size)\n"),
            (
                "excess = (y2 - y1 * (y1 / n) - (1 - 1 / n) * w1) / noise",
                "excess = (y2 - y1 * (y1 / n) - 1.5 * (1 - 1 / n) * w1) / noise",
            ),
        ),
        (
            "honest_scores::test_honest_scores_raise_no_alarm[s1]",
            "honest_scores::test_honest_scores_raise_no_alarm[informative]",
            "honest_scores::test_honest_scores_raise_no_alarm[coarse]",
            "honest_scores::test_honest_scores_raise_no_alarm[sure]",
            "honest_scores::test_honest_scores_raise_no_alarm[trials]",
            "honest_scores::test_honest_scores_raise_no_alarm[values]",
            *(f"statistics::test_honest_scores_do_not_leak[{k}]" for k in range(20)),
            *(f"normal_items::test_honest_scores_do_not_leak[{k}]" for k in range(8)),
            "statistics::test_yes_or_no_outcomes_do_not_leak",
        ),
        ("honest_scores::test_false_alarms_and_power",),
    ),
    Fault(
        "exposures of all sizes together",
        _in(
            "evaluate._leakage",
            (
                'cells = found.cells("exposure")\n'
                '    octave = {**cells, "cell": cells["cell"] >> STEPS}',
                'cells = found.cells("exposure")\n'
                '    octave = {**cells, "cell": cells["cell"] * 0}',
            ),
        ),
        ("honest_scores::test_leaks_of_small_exposures_show_beside_large_ones",),
    ),
    Fault(
        "leakage looks the other way",
        _in(
            "evaluate._leakage",
            ("least = int(z.argmin())", "least = int(z.argmax())"),
            (
                "towards = rank - (weight @ rank) / weight.sum()",
                "towards = (weight @ rank) / weight.sum() - rank",
            ),
            ("more = mine - its", "more = its - mine"),
        )
        + _in("summaries", ("_LEAKAGE = -6.0", "_LEAKAGE = -1e9")),
        (
            "honest_scores::test_heavy_leaks_show_in_outcomes_alone",
            "honest_scores::test_light_leaks_show_in_fresh_outcomes",
            "honest_scores::test_in_sample_scores_against_out_of_fold_ones",
            "honest_scores::test_a_tree_learns_by_heart",
            "statistics::test_scores_that_saw_their_counts_are_refused[None]",
            "statistics::test_scores_that_saw_their_counts_are_refused[20.0]",
            "normal_items::test_scores_that_saw_their_values_are_refused[None]",
            "normal_items::test_scores_that_saw_their_values_are_refused[1.0]",
        ),
        ("honest_scores::test_false_alarms_and_power",),
    ),
    Fault(
        "no common factor of fresh rates",
        _in(
            "evaluate._leakage",
            ("factor += float(np.clip(step, -2.0, 2.0))", "factor += 0.0 * float(step)"),
        ),
        ("honest_scores::test_a_common_factor_hides_no_leak",),
    ),
    Fault(
        "fold leak",
        _in(
            "evaluate.cross_fitting",
            ("train, test = np.flatnonzero(fold != k)", "train, test = np.arange(n)"),
        ),
        (
            "honest_scores::test_no_score_is_trained_on_its_own_row",
            "honest_scores::test_groups_stay_together",
            "honest_scores::test_a_tree_learns_by_heart",
        ),
    ),
    Fault(
        "groups divided among folds",
        _in(
            "evaluate.cross_fitting",
            (
                "labels = np.arange(n) if groups is None else np.asarray(groups)",
                "labels = np.arange(n)",
            ),
        ),
        ("honest_scores::test_groups_stay_together",),
    ),
    Fault(
        "spread within bins twice what it is",
        _in(
            "evaluate.bin_choice", ("(ends[1] - ends[0]) ** 2 / 4", "(ends[1] - ends[0]) ** 2 / 2")
        ),
        ("honest_scores::test_the_share_that_wide_bins_hide_is_the_true_one",),
    ),
    Fault(
        "noise of bins with the curve in it",
        _in(
            "evaluate.bin_choice",
            (
                "rough = np.diff(values, 2)",
                "rough = values - np.median(values)",
            ),
        ),
        ("honest_scores::test_too_few_and_too_many_bins_show",),
    ),
    # five steps
    Fault(
        "no smoothing",
        _in(
            "five_steps.smoothing",
            ("shrunk = turn @ (z / (1.0 + multiple * penalty))", "shrunk = turn @ z"),
        ),
        (
            "five_steps::test_smooth_curves_recover_s1",
            "five_steps::test_the_smoother_finds_the_noise",
            "five_steps::test_posteriors_are_near_those_of_the_hierarchical_model",
        ),
    ),
    # quantities and theory
    Fault(
        "errors of two scores apart",
        _in(
            "quantities.pairs",
            (
                "correlation[name] = _correlation(influence[first], influence[name])",
                "correlation[name] = 0.0 * _correlation(influence[first], influence[name])",
            ),
        ),
        (
            "quantities::test_better_score_is_found",
            "quantities::test_a_score_is_as_good_as_itself",
        ),
    ),
    Fault(
        "worst choice of rho",
        _in(
            "theory.regularisation",
            (
                "best = int(np.argmax(np.where(np.isfinite(total), total, -np.inf)))",
                "best = int(np.argmin(np.where(np.isfinite(total), total, np.inf)))",
            ),
        ),
        ("theory::test_choice_of_rho_by_counts_held_out",),
    ),
    # simulations and their oracles
    Fault(
        "simulations of other moments",
        _in(
            "simulation.clicks",
            (
                "theta = rng.gamma(np.exp(-log_cv2), np.exp(log_mean + log_cv2))",
                "theta = rng.gamma(np.exp(-log_cv2) + 1, np.exp(log_mean + log_cv2))",
            ),
            (
                "theta = score * np.exp(rng.normal(delta, sigma, n_items))",
                "theta = score * np.exp(rng.normal(delta, sigma**2, n_items))",
            ),
        ),
        (
            "simulation::test_s1_has_its_moments",
            "simulation::test_click_rates_are_lognormal_around_the_score",
        ),
    ),
    Fault(
        "lognormal rates of another sigma",
        _in(
            "simulation.lognormal",
            (
                "theta = t * np.exp(rng.normal(delta, sigma, len(t)))",
                "theta = t * np.exp(rng.normal(delta, 1.1 * sigma, len(t)))",
            ),
        ),
        (
            "oracles::test_lognormal_oracle_is_calibrated",
            "oracles::test_rates_are_lognormal_around_given_scores",
        ),
        ("headlines::test_lognormal_rates[delta=0.5,sigma=0.5]",),
    ),
    Fault(
        "Laplace effects of another width",
        _in(
            "simulation.laplace",
            ("rng.laplace(0.0, 1.0, n_items)", "rng.laplace(0.0, 1.2, n_items)"),
        ),
        (
            "oracles::test_laplace_oracle_is_calibrated_at_all_scores",
            "studies::test_figures_of_the_normal_study",
        ),
    ),
    Fault(
        "scores that saw their own values",
        _in(
            "simulation.laplace",
            ("others = [k for k in range(_FOLDS) if k != fold]", "others = list(range(_FOLDS))"),
        ),
        ("oracles::test_scores_never_saw_their_own_values",),
    ),
]

FAULTS = {fault.name: fault for fault in _ALL}

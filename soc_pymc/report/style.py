"""The style of the page: for screens wide and narrow, light and dark, and for paper."""

__all__ = ["CSS"]

CSS = """
:root {
  --ink: #1b2430; --soft: #55606e; --page: #ffffff; --card: #f5f7f9; --line: #dde2e8;
  --accent: #00578c; --ok: #006b4e; --ok-back: #e4f4ee; --look: #7a5200; --look-back: #fdf3dc;
  --fail: #a33a00; --fail-back: #fdebe2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6e9ed; --soft: #a9b3bf; --page: #14191f; --card: #1d242c; --line: #36404b;
    --accent: #7cc4f2; --ok: #62d2ac; --ok-back: #12301f; --look: #f0c060; --look-back: #352a10;
    --fail: #ff9d6c; --fail-back: #3a1d10;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 54rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1, h2, h3 { line-height: 1.25; text-wrap: balance; overflow-wrap: anywhere; }
h1 { font-size: 2rem; margin: 0 0 .75rem; letter-spacing: -.01em; }
h2 { font-size: 1.45rem; margin: 0 0 .75rem; }
h2.lesser { font-size: 1.1rem; margin: 1.75rem 0 .4rem; }
h3 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: 0 0 1rem; max-width: 44rem; overflow-wrap: anywhere; }
a { color: var(--accent); }
a:focus-visible, summary:focus-visible, [tabindex]:focus-visible {
  outline: 3px solid var(--accent); outline-offset: 2px;
}
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--page); padding: .5rem 1rem; }
.eyebrow {
  margin: 0 0 .25rem; color: var(--soft); font-size: .8rem; font-weight: 600;
  letter-spacing: .08em; text-transform: uppercase;
}
.lead { font-size: 1.1rem; color: var(--soft); }
.verdicts { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1rem; }
.verdict { border: 1px solid; border-left-width: 6px; border-radius: 6px; padding: .9rem 1.1rem; }
.verdict p { margin: 0; font-size: .925rem; }
.verdict .what { color: var(--soft); font-size: .8rem; font-weight: 600; }
.verdict .word { margin: .1rem 0 .35rem; font-size: 1.2rem; font-weight: 650; }
.verdict.ok { border-color: var(--ok); background: var(--ok-back); }
.verdict.look { border-color: var(--look); background: var(--look-back); }
.verdict.fail { border-color: var(--fail); background: var(--fail-back); }
.ok .word, .chip.ok { color: var(--ok); }
.look .word, .chip.look { color: var(--look); }
.fail .word, .chip.fail { color: var(--fail); }
.chip { font-weight: 650; white-space: nowrap; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: 1.75rem 0 0; padding: .7rem 0;
  border-top: 1px solid var(--line); border-bottom: 1px solid var(--line); }
section { margin-top: 3rem; scroll-margin-top: 1rem; }
dl.pairs { margin: 0 0 1rem; display: grid; gap: 0; }
dl.pairs div { display: grid; grid-template-columns: minmax(9rem, 17rem) 1fr; gap: 1rem;
  padding: .4rem 0; border-bottom: 1px solid var(--line); }
dt { color: var(--soft); }
dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; min-width: 0; }
.scroll { overflow-x: auto; margin: 0 0 1.25rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; line-height: 1.45;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 650; padding: .25rem 0 .5rem; }
th, td { text-align: left; vertical-align: top; padding: .42rem .9rem .42rem 0;
  border-bottom: 1px solid var(--line); }
th:last-child, td:last-child { padding-right: .25rem; }
thead th { color: var(--soft); font-size: .82rem; font-weight: 600; vertical-align: bottom;
  border-bottom: 2px solid var(--line); }
tbody th { font-weight: 500; }
td bdi, th bdi { display: inline-block; max-width: 16rem; overflow-wrap: break-word; }
.n { text-align: right; }
tbody .n { white-space: nowrap; }
.w { min-width: 15rem; }
.wide { overflow-x: auto; }
figure { margin: 0 0 1.5rem; }
figure img { display: block; width: 100%; max-width: 48rem; height: auto; background: #fff;
  border-radius: 4px; }
figcaption { margin-top: .4rem; color: var(--soft); font-size: .9rem; max-width: 44rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: 1rem; }
.panels figure { margin: 0; }
.short, .advice { padding-left: 1.2rem; max-width: 44rem; overflow-wrap: anywhere; }
.short li, .advice li { margin-bottom: .4rem; }
details { margin: 0 0 1.25rem; }
summary { cursor: pointer; color: var(--accent); padding: .25rem 0; }
pre { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: .9rem 1rem; font-size: .85rem; line-height: 1.5; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .92em; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line);
  color: var(--soft); font-size: .9rem; }
@media (max-width: 40rem) {
  main { padding: 1.5rem 1rem 3rem; }
  h1 { font-size: 1.6rem; }
  .lead { font-size: 1.02rem; }
  .wide img { width: 36rem; max-width: none; }
  dl.pairs div { grid-template-columns: 1fr; gap: 0; }
}
@media print {
  :root {
    --ink: #000; --soft: #444; --page: #fff; --card: #f5f5f5; --line: #bbb; --accent: #000;
    --ok: #006b4e; --ok-back: #fff; --look: #7a5200; --look-back: #fff; --fail: #a33a00;
    --fail-back: #fff;
  }
  body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  nav, .skip { display: none; }
  section { margin-top: 1.5rem; }
  h2, h3, caption { break-after: avoid; }
  figure, tr, .verdict { break-inside: avoid; }
  thead { display: table-header-group; }
  .scroll, .wide { overflow: visible; }
  .panels { grid-template-columns: repeat(4, 1fr); }
  details::details-content { content-visibility: visible; block-size: auto; }
  summary { list-style: none; }
}
"""

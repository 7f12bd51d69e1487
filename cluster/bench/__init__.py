"""`pilotfish bench`: legs side by side in one run, with the no-speculation leg always among them.

Reading order: `legs` and `loads` say what is measured, `dataset` and `workload` on which prompts,
`schedule` in which order; `servers` starts what is measured and `attempt` measures one cell;
`watch` refuses what did not happen; `summary` and `stats` make figures of it, `record` keeps them;
`table`, `plots` and `page` show them, `baseline` compares them.
"""

from cluster.deployments.reports import autoscaling_stats, verifier_status

STATS = {
    "pid": 7,
    "running": 2,
    "waiting": 3,
    "free_blocks": 25,
    "total_blocks": 100,
    "links": [
        {"drafter": "d0", "mechanism": "suffix", "up": True, "pid": 9, "frames_sent": 11},
        {"drafter": "d1", "up": False, "something_new": 1},
    ],
    "something_new": 1,
}


def test_a_report_carries_what_the_engine_says_and_ignores_what_it_does_not_know() -> None:
    status = verifier_status("v0", STATS)
    assert (status.verifier, status.pid, status.running, status.waiting) == ("v0", 7, 2, 3)
    assert [(link.drafter, link.up, link.frames_sent) for link in status.links] == [
        ("d0", True, 11),
        ("d1", False, 0),
    ]


def test_load_for_the_autoscaler_is_finite_even_before_the_pool_exists() -> None:
    assert autoscaling_stats(verifier_status("v0", {}))["kv_used_share"] == 0.0
    assert autoscaling_stats(verifier_status("v0", STATS)) == {
        "running": 2.0,
        "waiting": 3.0,
        "kv_used_share": 0.75,
    }

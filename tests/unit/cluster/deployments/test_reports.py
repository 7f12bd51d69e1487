from cluster.deployments.reports import verifier_status

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


def test_wishes_name_pools_and_only_those_that_are_there() -> None:
    stats = STATS | {"wants": {"eagle3": "gain", "": "due", "mtp": "used"}}
    status = verifier_status("v0", stats, {"eagle3": "Drafter-eagle3", "": "Drafter-custom_class"})
    assert [(wish.pool, wish.why) for wish in status.wishes] == [
        ("Drafter-eagle3", "gain"),
        ("Drafter-custom_class", "due"),
    ]
    assert not verifier_status("v0", STATS, {"eagle3": "Drafter"}).wishes

"""The paper's figures show what the paper says, and are drawn from what was computed."""

import numpy as np
import pytest

from gigagp.paper import blocks, depth, groups


def is_png(path):
    return path.read_bytes().startswith(b"\x89PNG")


def test_blocks_keep_what_experts_see(tmp_path):
    result = blocks.blocks()
    partition, sharing, local = result.ways
    assert partition.pairs == local.pairs == 1 / blocks.EXPERTS
    assert [len(b) for b in partition.blocks] == [16] * 4
    assert [len(b) for b in sharing.blocks] == [32] * 4
    assert result.covariance(partition) < result.covariance(sharing)
    assert result.covariance(partition) < result.covariance(local)
    for way in result.ways:
        assert (np.diagonal(way.in_data) == np.diagonal(result.K)).all(), "every row is seen with itself"
        assert set(np.concatenate(way.blocks)) == set(range(blocks.POINTS))
        kept = way.in_data > 0
        assert (way.in_data[kept] == result.K[kept]).all()
        assert np.count_nonzero(way.in_experts) == sum(len(b) ** 2 for b in way.blocks)
    assert blocks.table(result)[0] == (partition.title, partition.pairs, result.covariance(partition))
    blocks.draw(result, tmp_path / "blocks.png")
    assert is_png(tmp_path / "blocks.png")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*bound")
def test_more_experts_cost_accuracy_and_more_data_give_it_back(tmp_path):
    few, many, more = (depth.panel(*each) for each in ((200, 1), (200, 3), (800, 3)))
    assert (few.experts, few.points, many.experts, many.points, more.points) == (4, 100, 64, 25, 100)
    assert many.likelihood_ratio < few.likelihood_ratio < 1
    assert many.likelihood_ratio < more.likelihood_ratio < 1
    assert (few.x == more.x[:200]).all()
    panels = [few, few, many, more, more, more]
    assert depth.table(panels)[2] == (200, 64, 25, many.likelihood_ratio)
    depth.draw(panels, tmp_path / "new" / "depth.png")
    assert is_png(tmp_path / "new" / "depth.png")


def test_groups_hold_every_leaf_once(tmp_path):
    result = groups.run(units=5)
    assert sum(leaves for _, leaves in groups.table(result)) == result.tree.n_leaves
    assert result.span(result.tree.root) == (0, 4)
    places = [result.place(node) for node in result.tree.cut(result.tree.n_leaves)]
    assert np.all(np.diff(places) > 0), "leaves stand in order"
    groups.draw(result, tmp_path / "groups.png")
    assert is_png(tmp_path / "groups.png")

"""Rules that combine the experts' predictions."""

from gigagp.combine.barycentre import Barycentre
from gigagp.combine.base import LAWS, CombinationRule, JointRule, Message, Opinion, Prediction, Rule
from gigagp.combine.bcm import BCM
from gigagp.combine.blend import Blend
from gigagp.combine.gpoe import GPoE
from gigagp.combine.grbcm import GRBCM
from gigagp.combine.healed import Healed
from gigagp.combine.healed_blend import HealedBlend
from gigagp.combine.npae import NPAE
from gigagp.combine.poe import PoE
from gigagp.combine.rbcm import RBCM
from gigagp.errors import choose

__all__ = [
    "BCM",
    "GRBCM",
    "LAWS",
    "NPAE",
    "RBCM",
    "RULES",
    "Barycentre",
    "Blend",
    "CombinationRule",
    "GPoE",
    "Healed",
    "HealedBlend",
    "JointRule",
    "Message",
    "Opinion",
    "PoE",
    "Prediction",
    "Rule",
    "rule",
]

RULES: dict[str, type[CombinationRule]] = {
    r.name: r for r in (PoE, GPoE, BCM, RBCM, GRBCM, Healed, Barycentre, NPAE, Blend, HealedBlend)
}


def rule(combine: str | CombinationRule, auto: str) -> CombinationRule:
    """The rule of that name, or the object itself; "auto" stands for the rule named `auto`."""
    if isinstance(combine, CombinationRule):
        return combine
    by_name: CombinationRule = choose("combine", combine, {**RULES, "auto": RULES[auto]})()
    return by_name

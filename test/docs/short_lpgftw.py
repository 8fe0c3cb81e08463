"""`lpgftw` as the documentation calls it, with the smallest budget that still does everything.

What learns gets two iterations of five trajectories and short evaluations, in the graph of one
task. What runs tables of experiments says what it would run. What serves until it is stopped, or
speaks to a running graph, has its words read by the real parser. Every other word is the
document's own.
"""

import sys

from lpgftw_ros.cli import _parser, main

FEW = ('evaluation_episodes=2', 'stochastic_episodes=2', 'update_trajectories=5')
BRIEF = ('--iterations', '2', '--trajectories', '5', *(w for few in FEW for w in ('--set', few)))
SHORT = {
    'train': BRIEF,
    'up': (*BRIEF, '--tasks', '1'),
    'demo': ('--iterations', '1'),
    'experiment': ('--dry-run',),
    'reproduce': ('--dry-run',),
    'bench': ('--episodes', '2'),
}
READ_ONLY = ('watch', 'ctl')


def shortened(words: list[str]) -> list[str]:
    """Return the words with the budget behind them, where argparse lets it win."""
    if not words or {'--help', '--check', '--resume', '--dry-run'} & set(words):
        return words
    if '--policy-from' in words:  # would serve until it is stopped
        return [*words, '--check']
    if words[0] == 'bench' and '--episodes' not in words:
        return words
    return [*words, *SHORT.get(words[0], ())]


if __name__ == '__main__':
    if sys.argv[1:2] and sys.argv[1] in READ_ONLY:
        _parser(sys.argv[1]).parse_args(sys.argv[1:])
        sys.exit()
    sys.exit(main(shortened(sys.argv[1:])))

"""Scripts by which shells complete command lines, made out of the parsers themselves.

Rule: a script is text alone, made once: nothing of flinkish runs while somebody presses the tabulator.
"""

from __future__ import annotations

import argparse
import shlex
from typing import Any, NamedTuple

from flinkish.cli.parsers import add_command

_SHELLS = ("bash", "zsh", "fish")


class Completed(NamedTuple):
    """What can stand behind a command."""

    help: str
    #: option -> its help
    options: dict[str, str]
    #: the words among which a positional argument is chosen
    choices: tuple[str, ...]


def add_commands(commands: Any) -> None:
    """Add the parser of this command."""
    completion = add_command(
        commands,
        "completion",
        "print a script by which a shell completes these commands",
        lambda arguments: print(script(arguments.shell, completed(commands))),
        "source <(flinkish completion bash)      # in ~/.bashrc",
        "source <(flinkish completion zsh)       # in ~/.zshrc, behind compinit",
        "flinkish completion fish > ~/.config/fish/completions/flinkish.fish",
    )
    completion.add_argument("shell", choices=_SHELLS, help="which one")


def completed(commands: Any) -> dict[str, Completed]:
    """Name of a command -> what can stand behind it. ``commands``: the subparsers of `argparse`."""
    helps = {action.dest: action.help or "" for action in commands._choices_actions}
    found: dict[str, Completed] = {}
    for name, parser in commands.choices.items():
        found[name] = _of_parser(parser, helps.get(name, ""))
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                found.update((f"{name} {inner}", one) for inner, one in completed(action).items())
    return found


def _of_parser(parser: argparse.ArgumentParser, text: str) -> Completed:
    options: dict[str, str] = {}
    choices: list[str] = []
    for action in parser._actions:
        options.update((option, action.help or "") for option in action.option_strings)
        is_group = isinstance(action, argparse._SubParsersAction)
        if not action.option_strings and action.choices is not None and not is_group:
            choices += map(str, action.choices)
    return Completed(text, options, tuple(choices))


def script(shell: str, commands: dict[str, Completed]) -> str:
    """The script for a shell: ``bash``, ``zsh`` or ``fish``."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)


def _seconds(commands: dict[str, Completed]) -> dict[str, list[str]]:
    """First word of a command of two words -> its second words."""
    found: dict[str, list[str]] = {}
    for name in commands:
        first, _, second = name.partition(" ")
        if second:
            found.setdefault(first, []).append(second)
    return found


def _firsts(commands: dict[str, Completed]) -> list[str]:
    return list(dict.fromkeys(name.partition(" ")[0] for name in commands))


def _bash(commands: dict[str, Completed]) -> str:
    cases = [
        f'        {shlex.quote(name)}) words="{" ".join([*command.choices, *command.options])}" ;;'
        for name, command in commands.items()
    ]
    seconds = [
        f'        {shlex.quote(first)}) seconds="{" ".join(words)}" ;;' for first, words in _seconds(commands).items()
    ]
    return "\n".join(
        [
            "# completion of flinkish in bash",
            "_flinkish() {",
            '    local word="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" second="" words="" seconds=""',
            "    COMPREPLY=()",
            '    if [ "$COMP_CWORD" -eq 1 ]; then',
            f'        COMPREPLY=($(compgen -W "{" ".join(_firsts(commands))} --help --version" -- "$word"))',
            "        return",
            "    fi",
            '    case "$command" in',
            *seconds,
            "    esac",
            '    [ "$COMP_CWORD" -gt 2 ] && second="${COMP_WORDS[2]}"',
            '    case " $seconds " in *" $second "*) [ -n "$second" ] && command="$command $second" ;; esac',
            '    case "$command" in',
            *cases,
            "    esac",
            '    [ "$COMP_CWORD" -eq 2 ] && words="$seconds $words"',
            '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
            "}",
            "complete -o default -F _flinkish flinkish",
        ]
    )


def _zsh(commands: dict[str, Completed]) -> str:
    described = [
        f"        {shlex.quote(f'{first}:{commands[first].help if first in commands else first}')}"
        for first in _firsts(commands)
    ]
    cases = [
        f"        {shlex.quote(name)}) found=({' '.join(map(shlex.quote, [*command.choices, *command.options]))}) ;;"
        for name, command in commands.items()
    ]
    seconds = [
        f"        {shlex.quote(first)}) seconds=({' '.join(more)}) ;;" for first, more in _seconds(commands).items()
    ]
    return "\n".join(
        [
            "#compdef flinkish",
            "# completion of flinkish in zsh",
            "_flinkish() {",
            "    local -a commands found seconds",
            "    local command=$words[2]",
            "    if (( CURRENT == 2 )); then",
            "        commands=(",
            *described,
            "        )",
            "        _describe command commands",
            "        return",
            "    fi",
            "    case $command in",
            *seconds,
            "    esac",
            '    if (( CURRENT > 3 && ${seconds[(Ie)$words[3]]} )); then command="$command $words[3]"; fi',
            "    case $command in",
            *cases,
            "    esac",
            "    (( CURRENT == 3 )) && found+=($seconds)",
            "    compadd -- $found",
            "    _files",
            "}",
            "compdef _flinkish flinkish",
        ]
    )


def _fish(commands: dict[str, Completed]) -> str:
    lines = ["# completion of flinkish in fish"]
    for first in _firsts(commands):
        text = commands[first].help if first in commands else first
        lines.append(f"complete -c flinkish -n __fish_use_subcommand -f -a {first} -d {_quoted(text)}")
    for first, seconds in _seconds(commands).items():
        lines.append(f"complete -c flinkish -n '__fish_seen_subcommand_from {first}' -a {_quoted(' '.join(seconds))}")
    for name, command in commands.items():
        seen = " ".join(f"; and __fish_seen_subcommand_from {word}" for word in name.split())[len("; and ") :]
        for option, text in command.options.items():
            kind = "l" if option.startswith("--") else "s" if len(option) == 2 else "o"
            lines.append(f"complete -c flinkish -n '{seen}' -{kind} {option.lstrip('-')} -d {_quoted(text)}")
        for choice in command.choices:
            lines.append(f"complete -c flinkish -n '{seen}' -a {choice}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A text in the quotes of fish, in which a backslash stands before a quote."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("%%", "%") + "'"

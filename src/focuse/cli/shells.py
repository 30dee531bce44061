"""The scripts of `focuse completion`: each hands over the words that are typed and offers the lines it gets."""

from __future__ import annotations

# No mapfile: macOS has bash 3.2.
BASH = r"""
_focuse_complete() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(_FOCUSE_COMPLETE=bash COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" \
        COMP_WORDBREAKS="$COMP_WORDBREAKS" "$1" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/:=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o nosort -F _focuse_complete focuse 2>/dev/null || complete -F _focuse_complete focuse
"""

ZSH = r"""
#compdef focuse
_focuse() {
    local -a lines values shown open
    local line value
    lines=("${(@f)$(_FOCUSE_COMPLETE=zsh "${words[1]}" "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    for line in "${lines[@]}"; do
        value="${line%%$'\t'*}"
        [[ -z "$value" ]] && continue
        if [[ "$value" == *[/:=] ]]; then
            open+=("$value")
        elif [[ "$line" == *$'\t'* ]]; then
            values+=("$value") shown+=("$value  -- ${line#*$'\t'}")
        else
            values+=("$value") shown+=("$value")
        fi
    done
    (( ${#open} )) && compadd -M 'm:{[:lower:][:upper:]}={[:upper:][:lower:]}' -S '' -- "${open[@]}"
    (( ${#values} )) && compadd -M 'm:{[:lower:][:upper:]}={[:upper:][:lower:]}' -l -d shown -- "${values[@]}"
}
compdef _focuse focuse
"""

FISH = r"""
function __focuse_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    env _FOCUSE_COMPLETE=fish $words[1] $words[2..-1] "$typed" 2>/dev/null
end
complete -c focuse -f -a '(__focuse_complete)'
"""

POWERSHELL = r"""
Register-ArgumentCompleter -Native -CommandName focuse -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.EndOffset -lt $cursorPosition } |
        ForEach-Object { if ($_.PSObject.Properties['Value']) { [string]$_.Value } else { $_.Extent.Text } })
    $typed = $wordToComplete.Trim('"', "'")
    if ($typed -eq '') { $typed = '""' }
    $env:_FOCUSE_COMPLETE = 'powershell'
    try { $lines = @(& focuse @words $typed 2>$null) } finally { Remove-Item Env:_FOCUSE_COMPLETE }
    foreach ($line in $lines) {
        $value, $help = $line -split "`t", 2
        if (-not $help) { $help = $value }
        $text = if ($value -match "[\s'`"`$;&|()<>{}@#,]") { "'" + $value.Replace("'", "''") + "'" } else { $value }
        [System.Management.Automation.CompletionResult]::new($text, $value, 'ParameterValue', $help)
    }
}
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH, "powershell": POWERSHELL}

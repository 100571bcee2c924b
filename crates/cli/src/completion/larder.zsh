#compdef larder
# Completion of larder's command line in zsh.

_larder() {
    local line value
    local -a values shown directories
    for line in "${(@f)$("$words[1]" __complete -- "${(@Q)words[1,CURRENT - 1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        value=${line%%$'\t'*}
        # A path goes on after a directory.
        if [[ $value == */ ]]; then
            directories+=("$value")
        else
            values+=("$value")
            shown+=("${line/$'\t'/  -- }")
        fi
    done
    local nothing=1
    (( $#values )) && compadd -l -d shown -a values && nothing=0
    (( $#directories )) && compadd -S '' -a directories && nothing=0
    return nothing
}

if [[ $funcstack[1] == _larder ]]; then
    _larder "$@"
else
    compdef _larder larder
fi

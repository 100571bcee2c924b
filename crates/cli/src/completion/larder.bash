# Completion of larder's command line in bash.

_larder() {
    # Bash ends words at colons and equals signs: put IMAGE:/PATH together again.
    local line=${COMP_LINE:0:COMP_POINT} words=() word gap i
    for ((i = 0; i <= COMP_CWORD; i++)); do
        gap=${line%%[![:space:]]*}
        line=${line#"$gap"}
        word=${COMP_WORDS[i]}
        ((i < COMP_CWORD)) || word=$line
        line=${line#"$word"}
        if [[ -n $gap || $i -eq 0 ]]; then
            words+=("$word")
        else
            words[${#words[@]} - 1]+=$word
        fi
    done

    # Bash replaces only what follows the last place at which it ended a word.
    local current=${words[${#words[@]} - 1]} replaced=$2
    [[ $replaced == [:=] ]] && replaced=
    local kept=${current%"$replaced"}
    kept=${kept//[\\\"\']/}

    local candidate quoted
    COMPREPLY=()
    while IFS= read -r candidate; do
        candidate=${candidate%%$'\t'*}
        candidate=${candidate#"$kept"}
        if [[ $current == [\"\']* ]]; then
            quoted=$candidate
        else
            printf -v quoted %q "$candidate"
        fi
        COMPREPLY+=("$quoted")
    done < <("$1" __complete -- "${words[@]//[\\\"\']/}" 2>/dev/null)

    # A path goes on after a directory.
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}

complete -F _larder larder

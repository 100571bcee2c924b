# Completion of larder's command line in fish.

function __larder_complete
    set --local words (commandline --current-process --tokenize --cut-at-cursor)
    set --local typed (commandline --current-token --cut-at-cursor)
    set --local meant (string unescape -- "$typed")
    or set meant $typed
    larder __complete -- $words "$meant" 2>/dev/null
end

complete --command larder --no-files --keep-order --arguments '(__larder_complete)'

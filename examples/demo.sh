#!/usr/bin/env bash
# German to English on the Multi30k text beside this file: train a small depth-wise LSTM Transformer, translate, score.
# Run it through `make demo`, or by hand in the folder of the repository with deepwire installed.
# Arguments are passed to training, such as: examples/demo.sh training.max_updates=500
set -euo pipefail
cd "$(dirname "$0")/.."

run=runs/demo
text=examples/multi30k/test_2016_flickr
output="$run/test_2016_flickr.en"

say() { printf '\n== %s\n' "$*"; }

say "Prepare the text"
deepwire prepare demo "$@"

say "Train (an interrupted run continues when this is called again)"
deepwire train demo "$@"

say "Translate test_2016_flickr"
deepwire translate "$run" -i "$text.de.gz" -o "$output"

say "Score"
deepwire evaluate "$output" --reference "$text.en.gz"

say "Some translations"
paste <(gzip -dc "$text.de.gz") "$output" <(gzip -dc "$text.en.gz") |
    awk -F '\t' 'NR % 200 == 7 { printf "  de   %s\n  ours %s\n  ref  %s\n\n", $1, $2, $3 }'

say "The model"
echo "  $run    translate more:  echo 'Ein Hund schläft.' | deepwire translate $run"

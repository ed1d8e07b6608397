#!/bin/sh
# Makes the corpora that fuzzing starts from: the lines that clients send in the transcripts of each door.
# A second copy of each seed has choices for the backend: the byte 0xFF, then any bytes.
set -eu
cd "$(dirname "$0")"
# The ids of the first two sessions in the harness of the loaf door.
FIRST=374708ff-f771-4dd5-979e-c875d56cd228
SECOND=7c3ccd10-bb7e-437b-86d3-7926ae627426
# Each target, and the door whose transcripts are its seeds.
for pair in exec:exec lines:exec synaps:synaps supex:supex supr:supr loaf:loaf peer:peer acp:acp mcp:mcp; do
    target=${pair%:*}
    mkdir -p "corpus/$target"
    for transcript in ../tests/transcripts/"${pair#*:}"/*.txt; do
        seed=corpus/$target/$(basename "$transcript" .txt)
        sed -n 's/^> //p' "$transcript" | sed 's/b64"[^"]*"/"aGVsbG8K"/g; s/{tmp}/\/tmp/g' \
            | sed "s/{s}/$FIRST/g; s/{s2}/$SECOND/g" > "$seed"
        { cat "$seed"; printf '\377'; head -c 96 "$transcript"; } > "$seed-choices"
    done
done

#!/bin/sh
# A runtime in a few lines: what is released is the file live/<channel>/<service>.txt.
# apply is told what to put there and may run twice; fetch says on stdout, as one JSON document,
# what is there, and never changes it. What either prints on stderr is kept: converge logs.
set -eu
place="$(dirname "$0")/live/$PVN_RELEASE_CHANNEL"
file="$place/$PVN_SERVICE.txt"
mark="$place/.$PVN_SERVICE" # version and checksum of what was applied

case "$1" in
apply)
	mkdir -p "$place"
	printf '%s, this is %s\n' "$GREETING" "$PVN_SERVICE_VERSION" > "$file"
	printf '%s\n%s\n' "$PVN_SERVICE_VERSION" "$(cksum < "$file")" > "$mark"
	echo "wrote $file" >&2
	;;
fetch)
	versions=
	if [ -f "$file" ] && [ -f "$mark" ]; then
		drifted=false # someone wrote to the file: reported as drift, and repaired
		[ "$(cksum < "$file")" = "$(sed -n 2p "$mark")" ] || drifted=true
		versions="{\"version\": \"$(sed -n 1p "$mark")\", \"active\": true, \"drifted\": $drifted}"
	fi
	printf '{"objects": [{"name": "%s", "objectType": "file", "status": "SUCCEEDED", "versions": [%s]}]}\n' \
		"$PVN_SERVICE" "$versions"
	;;
*)
	echo "usage: $0 apply|fetch" >&2
	exit 64
	;;
esac

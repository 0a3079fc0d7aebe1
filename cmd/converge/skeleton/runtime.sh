#!/bin/sh
# A minimal runtime: it deploys the file live/<channel>/<service>.txt.
# apply receives the content in the environment, and may run twice; fetch reports the current state
# on stdout, as one JSON document, and changes nothing. converge logs shows what both print on stderr.
set -eu
dir="$(dirname "$0")/live/$PVN_RELEASE_CHANNEL"
file="$dir/$PVN_SERVICE.txt"
mark="$dir/.$PVN_SERVICE" # version and checksum of what was applied

case "$1" in
apply)
	mkdir -p "$dir"
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

#!/bin/sh
# A service is the file live/PLACE/SERVICE.txt: its version, and a greeting. The greeting "none" cannot be applied.
set -eu
place="live/$PLACE"
file="$place/$PVN_SERVICE.txt"
mark="$place/.$PVN_SERVICE" # what was applied

case "$1" in
apply)
	[ "$GREETING" != none ] || { echo "no greeting" >&2; exit 9; }
	mkdir -p "$place"
	printf '%s\n%s\n' "$PVN_SERVICE_VERSION" "$GREETING" | tee "$mark" > "$file"
	;;
fetch)
	versions=
	if [ -f "$file" ]; then
		drifted=false
		cmp -s "$file" "$mark" || drifted=true
		versions="{\"version\": \"$(sed -n 1p "$mark")\", \"active\": true, \"drifted\": $drifted}"
	fi
	printf '{"objects": [{"name": "%s", "objectType": "file", "status": "SUCCEEDED", "versions": [%s]}]}\n' "$PVN_SERVICE" "$versions"
	;;
plan)
	now=
	[ ! -f "$file" ] || now="$(tr '\n' ' ' < "$file")"
	if [ "$now" = "$PVN_SERVICE_VERSION $GREETING " ]; then
		echo '{"changes": []}'
	else
		action=update
		[ -n "$now" ] || action=create
		printf '{"changes": [{"action": "%s", "objectType": "file", "name": "%s", "fields": [{"path": "content", "old": "%s", "new": "%s"}]}]}\n' \
			"$action" "$PVN_SERVICE" "${now% }" "$PVN_SERVICE_VERSION $GREETING"
	fi
	;;
remove)
	rm -f "$file" "$mark"
	;;
esac

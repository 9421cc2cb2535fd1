# What test/run and test/demo/run share: the set-up, a build staged in a temporary folder, and a
# child there that leaves nothing behind.  Sourced, by a script that has set -euo pipefail.
#
# Sets source, build, tmp, npm (a folder with node_modules, or empty).  Environment: PG_CONFIG, LLMQ_BUILD (build folder, if not the source
# folder), LLMQ_STAGE (a stage that exists already: then nothing is built).  With debug_stage=true
# a second stage is made, whose module has the debug points.

umask 022
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "${LLMQ_BUILD:-$source}" && pwd)
tmp=
child=
debug_stage=false

# Installs what is missing, and makes the temporary folder, which does not outlive the script.
stage_open() {
	"$source/test/setup-debian"
	tmp=$(mktemp -d "${TMPDIR:-/tmp}/$1-XXXXXX")
	trap stage_leave EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
}

stage_leave() {
	local status=$?
	trap - EXIT INT TERM HUP
	if [ -n "$child" ]; then
		kill -TERM "$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	fi
	rm -rf "$tmp"
	exit "$status"
}

# Fetches npm packages, if one of these files or folders needs them.
stage_npm() {
	npm=
	! grep -qsE 'node_modules|LlmqTest::Receiver' -r --include='*.p[lm]' "$@" || ! "$source/test/setup-npm" "$build/build/npm" || npm=$build/build/npm
}

# Makes the targets and stages llmq, and copies what the tests need: the checkout may be where the
# user who runs PostgreSQL cannot read.  Two runs in one checkout take turns, for they share the objects.
stage_build() {
	exec 9<"$source/Makefile"
	flock 9
	if [ -z "${LLMQ_STAGE:-}" ]; then
		local make=("${MAKE:-make}" -s --no-print-directory -j"$(nproc)" -C "$build" ${CI:+COPT=-Werror})
		[ "$build" = "$source" ] || make+=(-f "$source/Makefile")
		"${make[@]}" "$@" 9<&-
		"${make[@]}" install DESTDIR="$tmp/stage" 9<&- >/dev/null
		! $debug_stage || stage_debug
	fi
	mkdir -p "$tmp/tree/build" "$tmp/tmp"
	cp -R "$source"/{test,docs} "$tmp/tree"
	(cd "$source" && cp --parents README.md CONTRIBUTING.md CHANGELOG.md LICENSE META.json Makefile \
		extension/*.{control,[ch]} bgworker/README.md bgworker/*/*.[ch] sql/*.sql sql/*/*.sql "$tmp/tree")
	if [ -d "$build/build/unit" ]; then
		mkdir "$tmp/tree/build/unit"
		find "$build/build/unit" -name '*_test' -type f -perm -u+x -exec cp -t "$tmp/tree/build/unit" {} +
	fi
	[ -z "${npm:-}" ] || cp -R "$npm/node_modules" "$tmp/tree/build/node_modules"
	exec 9<&-
}

stage_debug() {
	"${make[@]}" debug-module 9<&-
	cp -R "$tmp/stage" "$tmp/stage-debug"
	local module
	module=$(find "$tmp/stage-debug" -name "llmq.*" -path '*/lib/*' -type f)
	cp "$build/build/debug/${module##*/}" "$module"
}

# Copies files of the copied tree, where it is the present folder, back to the sources if they have changed.
stage_fetch() {
	local file
	for file; do
		cmp -s "$file" "$source/$file" && continue
		mkdir -p "$(dirname "$source/$file")"
		cat "$file" >"$source/$file"
		echo "$file has changed"
	done
}

# Runs a command in the copied tree, in a clean environment with the NAME=VALUE words that come
# before it; as user postgres if this is root, because PostgreSQL refuses root.
stage_run() {
	local env=(
		PATH=/usr/bin:/bin:/usr/sbin:/sbin LANG=C.UTF-8 HOME="$tmp/tmp" TMPDIR="$tmp/tmp"
		PG_CONFIG="$(command -v "${PG_CONFIG:-pg_config}")" LLMQ_STAGE="${LLMQ_STAGE:-$tmp/stage}"
		LLMQ_STAGE_DEBUG="$([ ! -d "$tmp/stage-debug" ] || echo "$tmp/stage-debug")"
	)
	local as=() status=0
	if [ "$(id -u)" = 0 ]; then
		chown -R postgres: "$tmp"
		as=(setpriv --reuid=postgres --regid=postgres --init-groups --)		# unlike runuser, no process between us
	fi
	cd "$tmp/tree"
	env -i "${env[@]}" "${as[@]}" env "$@" &
	child=$!
	wait "$child" || status=$?
	child=
	return "$status"
}

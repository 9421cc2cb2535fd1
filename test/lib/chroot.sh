# Debian in a folder: what test/packages/deb and test/majors/run build and test in, so that the machine
# stays as it is.  Sourced, by a script that has set -euo pipefail.  It takes root and mmdebstrap.
#
# Environment: LLMQ_CHROOTS (where they are kept for the next time, /var/tmp/llmq-chroots).

chroots=${LLMQ_CHROOTS:-/var/tmp/llmq-chroots}

# Whether such folders can be made here.
chroot_possible() {
	[ "$(id -u)" = 0 ] || return 1
	command -v mmdebstrap >/dev/null || "$source/test/setup-debian" chroot || return 1
}

# chroot_make NAME SUITE PACKAGE...: makes $chroots/NAME from the machine's own mirror, unless it is there;
# then it gets the packages that it lacks.
chroot_make() {
	local name=$1 suite=$2 root=$chroots/$1 mirror
	shift 2
	if [ -e "$root/.whole" ]; then
		[ "$(cat "$root/.whole")" = "$*" ] || chroot_add "$root" "$@" || return
		echo "$*" >"$root/.whole"
		return 0
	fi
	mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -F /debian | grep -v -e -security | sort -u | head -1)
	[ -n "$mirror" ] || { echo "chroot: apt knows no mirror of Debian" >&2; return 1; }
	echo "chroot: making $root ($suite from $mirror)"
	mkdir -p "$chroots"
	rm -rf --one-file-system "$root"
	mmdebstrap --quiet --variant=apt --include="$(IFS=,; echo "$*")" --aptopt='Acquire::Check-Valid-Until "false"' \
		--aptopt='Acquire::Retries "3"' --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt=force-unsafe-io \
		--setup-hook='mkdir -p "$1/etc/postgresql-common"; echo "create_main_cluster = false" >"$1/etc/postgresql-common/createcluster.conf"' \
		"$suite" "$root" "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >&2 || return
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod 755 "$root/usr/sbin/policy-rc.d"
	echo "$*" >"$root/.whole"
}

chroot_add() {
	local root=$1
	shift
	echo "chroot: adding to $root"
	chroot_run "$root" sh -ec 'apt-get -qq update; apt-get -qq -y --no-install-recommends install "$@" >/dev/null' sh "$@" >&2
}

# chroot_run ROOT COMMAND...: runs it there as root, with /proc, /dev and a fresh /dev/shm, and with
# nothing of the caller's environment; when it or the caller ends, so do all processes that are left.  With the
# package mount there it sees no other root, or the kernel would make it no user namespaces (test/e2e/830_hosts.pl).
chroot_run() {
	local root=$1
	shift
	setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child -- /bin/bash -c '
		mount --bind "$1" "$1" && mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm" || exit
		cd "$1" && pivot_root . . || exit
		shift
		exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
			sh -c "! command -v umount >/dev/null || umount -l . && cd / && exec \"\$@\"" sh "$@"' bash "$root" "$@"
}

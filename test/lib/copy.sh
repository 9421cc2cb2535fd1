# A copy of the sources to build with other flags.  Sourced.

# copy_sources FROM TO: objects in TO stay, and are made again when their sources are newer.
copy_sources() {
	mkdir -p "$2"
	rm -rf "$2"/{test,sql,docs}
	tar -C "$1" -c --exclude='*.[od]' --exclude='*.so' --exclude=./build --exclude=./.git --exclude=./llmq-worker . | tar -C "$2" -x
}

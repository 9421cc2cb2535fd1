# llmq: one Makefile for the module, its SQL script, and the tests.
# PGXS does what it can; the rules below do what it cannot express.

EXTENSION  = extension/llmq
EXTVERSION = $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" $(srcdir)/$(EXTENSION).control)
MODULE_big = llmq
PGFILEDESC = "llmq - durable LLM jobs in PostgreSQL"

# $(call in,folder,names,suffix): the files of these names there.
in = $(patsubst %,$(1)/%.$(3),$(2))

# Plain C: no backend symbol, no libpq.  Each folder knows those before it and none behind it; jobs and
# relay do not know each other (make check-layers).
ENGINE_OBJS = \
	$(call in,bgworker/base,arena base64 buffer heap idempotency_key machine retry secret text,o) \
	$(call in,bgworker/json,json_check json_slice json_text json_write,o) \
	$(call in,bgworker/wire,http_request sse trace,o) \
	$(call in,bgworker/dialects,outcome \
		provider provider_anthropic provider_anthropic_params provider_draft provider_embeddings \
		provider_gemini provider_gemini_params provider_http provider_message provider_ollama \
		provider_openai_chat provider_openai_responses provider_param provider_part \
		provider_responses_params \
		reply reply_answer reply_anthropic reply_embeddings reply_error reply_gemini reply_ollama \
		reply_openai_chat reply_openai_responses reply_verdict reply_hint,o) \
	$(call in,bgworker/limits,breaker estimate ratelimit,o) \
	$(call in,bgworker/messages,email email_format email_verdict mailbox send_verdict smtp webhook \
		webhook_reply,o) \
	$(call in,bgworker/transfer,transfer transfer_clock transfer_end transfer_feed transfer_mail \
		transfer_poll transfer_resolve transfer_rest transfer_slot,o) \
	$(call in,bgworker/core,config core metric store,o) \
	$(call in,bgworker/jobs,delivery job job_call job_claim job_draw job_endpoint job_limits job_look \
		job_report job_settle job_table jobs ready settle,o) \
	$(call in,bgworker/relay,relay relay_look relay_message relay_send relay_store relay_topic,o) \
	$(call in,bgworker/engine,agenda engine engine_leave engine_metric engine_poll engine_report \
		engine_session,o)

# Inside the server.
SERVER_OBJS = \
	$(call in,bgworker/server,hmac host callback_worker store_spi transaction worker,o) \
	$(call in,extension,cage callback control database debug_point delegate fingerprint functions key_wait \
		launcher limit llmq owner service settings shared submit topic_lock wait wakeup,o)

OBJS = $(SERVER_OBJS) $(ENGINE_OBJS) $(WIN32RES)

# The worker elsewhere: the engine again, over libpq.
WORKER       = llmq-worker
PROGRAM_OBJS = $(call in,bgworker/program,hmac_program link log main metric_server options store_libpq,o)

# State is created once; code is idempotent and replayed by every upgrade.
SQL_STATE = sql/header.sql $(call in,sql/tables,config queue outbox idempotency worker dump,sql)
SQL_CODE  = \
	$(call in,sql/admin,identity home,sql) \
	$(call in,sql/jobs,policy effects place dependency status budget usage,sql) \
	$(call in,sql/outbox,emission body place api,sql) \
	$(call in,sql/submit,checks outbox callback enqueue submit submit_many http_submit,sql) \
	$(call in,sql/idempotency,table steps api,sql) \
	$(call in,sql/worker,session takeover poll claim settle entries messages notify \
		message_settle program limits settler,sql) \
	$(call in,sql/jobs,steering retention explain,sql) \
	$(call in,sql/admin,control sight metric check rights grants,sql)
INSTALL_SQL = sql/llmq--$(EXTVERSION).sql

# Versions before this one, oldest first: each can be updated from (sql/upgrade/header.sql).
RELEASES    = 0.1.0 0.2.0
UPGRADE_SQL = $(foreach v, $(RELEASES), sql/llmq--$(v)--$(EXTVERSION).sql)
DATA_built  = $(INSTALL_SQL) $(UPGRADE_SQL)

CURL_CONFIG ?= curl-config
CURL_CFLAGS := $(shell $(CURL_CONFIG) --cflags 2>/dev/null)
CURL_LIBS   := $(shell $(CURL_CONFIG) --libs 2>/dev/null)
ENGINE_LIBS  = $(CURL_LIBS) -ljansson

# Headers are named from bgworker/ on, those of extension/ with that word before them.
PG_CPPFLAGS = -I$(srcdir)/bgworker -I$(srcdir) $(CURL_CFLAGS) -DLLMQ_VERSION='"$(EXTVERSION)"'
PG_CFLAGS   = -MMD -MP -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare
SHLIB_LINK  = $(ENGINE_LIBS)

EXTRA_CLEAN = $(DEPS) $(WORKER) $(PROGRAM_OBJS) build llmq-*.zip llmq-*.tar.gz

# Bitcode serves functions inlined into JIT-compiled expressions.  We have none,
# and it would make clang a build requirement.
override with_llvm = no

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)

# On a bare machine only the targets that install what they need can run.
ifeq ($(wildcard $(PGXS)),)
all install uninstall installcheck clean:
	@echo "$@ needs PostgreSQL's server headers: set PG_CONFIG, or run 'make setup' on Debian" >&2; exit 1
.DEFAULT_GOAL := all
else
include $(PGXS)
endif
srcdir ?= .

# PGXS finds sources through VPATH but makes no object directories, and make
# would take the source directories for them.
ifneq ($(abspath $(srcdir)),$(CURDIR))
$(shell $(MKDIR_P) sql $(sort $(dir $(OBJS) $(PROGRAM_OBJS))))
endif

# Packaged servers are often built with --disable-dependency-tracking.
DEPS = $(addsuffix .d, $(basename $(OBJS) $(PROGRAM_OBJS)))
-include $(DEPS)
$(OBJS) $(PROGRAM_OBJS): $(srcdir)/$(EXTENSION).control

# -- SQL ------------------------------------------------------------------------

# Made anew when the Makefile changes: the order of the parts stands there.
$(INSTALL_SQL): $(SQL_STATE) $(SQL_CODE) sql/start.sql Makefile
	cat $(filter %.sql, $^) > $@

# $(call after,v,list): the members of list that follow v.
after = $(if $(filter $(1), $(firstword $(2))), $(wordlist 2, 99, $(2)), \
	$(call after,$(1),$(wordlist 2, 99, $(2))))

# One direct script for each release: the deltas that it lacks, then all the code.
define upgrade_script
sql/llmq--$(1)--$(EXTVERSION).sql: sql/upgrade/header.sql \
		$(patsubst %, sql/upgrade/%.sql, $(call after,$(1),$(RELEASES) $(EXTVERSION))) \
		$(SQL_CODE) sql/upgrade/footer.sql Makefile
	cat $$(filter %.sql, $$^) > $$@
endef
$(foreach v, $(RELEASES), $(eval $(call upgrade_script,$(v))))

# -- The worker elsewhere -------------------------------------------------------

LIBPQ_INCLUDE := $(shell $(PG_CONFIG) --includedir 2>/dev/null)

# The program needs libmicrohttpd as it needs libpq: what can be asked of it is the same everywhere.
HASH := \#
MICROHTTPD := $(shell echo '$(HASH)include <microhttpd.h>' | $(CC) $(CPPFLAGS) -E - >/dev/null 2>&1 && echo found)

ifneq ($(and $(wildcard $(LIBPQ_INCLUDE)/libpq-fe.h), $(MICROHTTPD)),)
all: $(WORKER)
install: install-worker
uninstall: uninstall-worker
else
all: no-worker
endif

$(PROGRAM_OBJS): override CPPFLAGS += -I$(LIBPQ_INCLUDE)

# 18: libpq_pgport no longer names libpgcommon, which hmac_program.c needs.
$(WORKER): $(PROGRAM_OBJS) $(ENGINE_OBJS)
	$(CC) $(CFLAGS) $^ $(LDFLAGS) $(LDFLAGS_EX) $(libpq_pgport) -L$(pkglibdir) $(filter -lpgcommon -lpgport -lcrypto, $(LIBS)) $(ENGINE_LIBS) -lmicrohttpd -lpthread -o $@

no-worker:
	@echo "llmq-worker is not built: the headers of libpq or libmicrohttpd are missing (libpq-dev, libmicrohttpd-dev on Debian)" >&2

install-worker: $(WORKER)
	$(MKDIR_P) '$(DESTDIR)$(bindir)'
	$(MKDIR_P) '$(DESTDIR)$(mandir)/man1' '$(DESTDIR)$(datadir)/llmq'
	$(INSTALL_PROGRAM) $(WORKER) '$(DESTDIR)$(bindir)/'
	$(INSTALL_DATA) $(srcdir)/share/llmq-worker.1 '$(DESTDIR)$(mandir)/man1/'
	sed 's,@bindir@,$(bindir),' $(srcdir)/share/llmq-worker@.service >'$(DESTDIR)$(datadir)/llmq/llmq-worker@.service'

uninstall-worker:
	rm -f '$(DESTDIR)$(bindir)/$(WORKER)' '$(DESTDIR)$(mandir)/man1/llmq-worker.1'
	rm -f '$(DESTDIR)$(datadir)/llmq/llmq-worker@.service'

.PHONY: no-worker install-worker uninstall-worker

# -- For those who watch ------------------------------------------------------------------

install: install-sight
uninstall: uninstall-sight

install-sight:
	$(MKDIR_P) '$(DESTDIR)$(datadir)/llmq'
	$(INSTALL_DATA) $(srcdir)/share/grafana.json $(srcdir)/share/postgres_exporter.yml '$(DESTDIR)$(datadir)/llmq/'

uninstall-sight:
	rm -f '$(DESTDIR)$(datadir)/llmq/grafana.json' '$(DESTDIR)$(datadir)/llmq/postgres_exporter.yml'

.PHONY: install-sight uninstall-sight

# -- The module with debug points, which tests of crashes stop at: never installed --------

DEBUG_MODULE = build/debug/$(MODULE_big)$(DLSUFFIX)
DEBUG_OBJS   = $(addprefix build/debug/, $(SERVER_OBJS))
-include $(DEBUG_OBJS:.o=.d)

build/debug/%.o: $(srcdir)/%.c $(srcdir)/$(EXTENSION).control
	@$(MKDIR_P) $(@D)
	$(CC) $(CFLAGS) $(CPPFLAGS) -DLLMQ_DEBUG_POINTS -c $< -o $@

$(DEBUG_MODULE): $(DEBUG_OBJS) $(ENGINE_OBJS)
	$(LINK.shared) -o $@ $^ $(LDFLAGS) $(LDFLAGS_SL) $(SHLIB_LINK)

debug-module: $(DEBUG_MODULE)

# -- Unit tests: plain programs, under the sanitizers ----------------------------

UNIT_TESTS   = $(notdir $(basename $(wildcard $(srcdir)/test/unit/*_test.c)))
UNIT_BUILD   = build/unit
UNIT_SANITIZE ?= -fsanitize=address,undefined -fno-sanitize-recover=all
UNIT_CFLAGS  = -std=gnu11 -g -O1 -Wall -Wextra -Werror -Wno-unused-parameter -fno-omit-frame-pointer \
	$(UNIT_SANITIZE) -MMD -MP
# zlib undoes the compressed bodies of test/cases, as libcurl does.  libcrypto signs webhooks, as the server does.
UNIT_LIBS    = -lz -lm -lcrypto
UNIT_OBJS    = $(patsubst bgworker/%.o, $(UNIT_BUILD)/%.o, $(ENGINE_OBJS))
UNIT_PROGRAMS = $(addprefix $(UNIT_BUILD)/, $(UNIT_TESTS))
-include $(wildcard $(UNIT_BUILD)/*.d $(UNIT_BUILD)/*/*.d)

$(UNIT_BUILD)/%.o: $(srcdir)/bgworker/%.c
	@$(MKDIR_P) $(@D)
	$(CC) $(UNIT_CFLAGS) $(PG_CPPFLAGS) -c $< -o $@

$(UNIT_BUILD)/%_test: $(srcdir)/test/unit/%_test.c $(UNIT_OBJS)
	$(CC) $(UNIT_CFLAGS) $(PG_CPPFLAGS) $< $(UNIT_OBJS) $(ENGINE_LIBS) $(UNIT_LIBS) -o $@

unit: $(UNIT_PROGRAMS)
	HARNESS_RULESFILE=$(srcdir)/test/testrules.yml $(PROVE) --jobs $(shell nproc) --exec '' $(UNIT_PROGRAMS)

# Those that no clock hurries, under valgrind, built without the sanitizers.  It keeps limits of its own,
# so machine_test is none of them.
VALGRIND_TESTS = $(addprefix build/valgrind/, $(filter-out engine% relay% transfer% machine%, $(UNIT_TESTS)))

valgrind:
	$(MAKE) -s --no-print-directory -f $(firstword $(MAKEFILE_LIST)) UNIT_BUILD=build/valgrind UNIT_SANITIZE= $(VALGRIND_TESTS)
	$(PROVE) --exec 'valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite' \
		$(VALGRIND_TESTS)

.PHONY: valgrind

# -- Fuzzing: each target for SECONDS (60), from seeds made of test/cases ----------------------

FUZZ_CC     ?= clang
FUZZ_BUILD   = build/fuzz
FUZZ_CFLAGS  = -std=gnu11 -g -O1 -Wall -Wextra -Werror -Wno-unused-parameter -fno-omit-frame-pointer \
	-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -MMD -MP
FUZZ_REPLIES = $(addprefix reply_, openai_chat openai_responses anthropic_messages gemini ollama_chat openai_embeddings)
FUZZ_TARGETS ?= sse text json hint request $(FUZZ_REPLIES)
FUZZ_OBJS    = $(patsubst bgworker/%.o, $(FUZZ_BUILD)/engine/%.o, $(filter-out $(addprefix bgworker/,transfer% core% jobs% relay% engine%), $(ENGINE_OBJS)))
FUZZ_LINK    = $(FUZZ_CC) $(FUZZ_CFLAGS) $(PG_CPPFLAGS) -fsanitize=fuzzer $< $(FUZZ_OBJS) -ljansson -lm -o $@
-include $(wildcard $(FUZZ_BUILD)/*.d $(FUZZ_BUILD)/engine/*/*.d)

$(FUZZ_BUILD)/engine/%.o: $(srcdir)/bgworker/%.c
	@$(MKDIR_P) $(@D)
	$(FUZZ_CC) $(FUZZ_CFLAGS) $(PG_CPPFLAGS) -c $< -o $@

$(addprefix $(FUZZ_BUILD)/, $(FUZZ_REPLIES)): $(FUZZ_BUILD)/reply_%: $(srcdir)/test/fuzz/reply_fuzz.c $(FUZZ_OBJS)
	$(FUZZ_LINK) -DFUZZ_API='"$*"'

$(addprefix $(FUZZ_BUILD)/, $(filter-out $(FUZZ_REPLIES), $(FUZZ_TARGETS))): $(FUZZ_BUILD)/%: $(srcdir)/test/fuzz/%_fuzz.c $(FUZZ_OBJS)
	$(FUZZ_LINK)

fuzz:
	$(srcdir)/test/setup-debian
	$(srcdir)/test/setup-debian fuzz
	@$(MAKE) -s --no-print-directory -f $(firstword $(MAKEFILE_LIST)) $(addprefix $(FUZZ_BUILD)/, $(FUZZ_TARGETS))
	$(srcdir)/test/fuzz/run $(FUZZ_BUILD) $(or $(SECONDS),60) $(FUZZ_TARGETS)

# -- Tests against a server where llmq is installed: PGHOST and the like say which --------

PG_PROVE ?= pg_prove

installcheck: pgtap

pgtap:
	$(bindir)/createdb llmq_installcheck
	$(bindir)/psql -qX -d llmq_installcheck -c 'CREATE EXTENSION llmq' -c 'CREATE EXTENSION pgtap'
	$(PG_PROVE) --psql-bin $(bindir)/psql -d llmq_installcheck --ext .sql --recurse \
		$(srcdir)/test/pgtap; status=$$?; $(bindir)/dropdb llmq_installcheck; exit $$status

# -- Everything on a throwaway server; installs packages on Debian if some are missing -----

setup:
	$(srcdir)/test/setup-debian

test:
	LLMQ_BUILD=$(CURDIR) $(srcdir)/test/run $(TESTS)

# End to end with llmq-worker programs in the place of the workers in the server; test/lib/driver.pl
# knows what cannot be.
test-program:
	HOST=program LLMQ_BUILD=$(CURDIR) $(srcdir)/test/run $(or $(TESTS),$(wildcard $(srcdir)/test/e2e/*.pl))

# The same with everything of ours under the sanitizers.
test-asan:
	LLMQ_BUILD=$(CURDIR) $(srcdir)/test/asan/run $(TESTS)

.PHONY: test-asan

# Which lines of the engine they run.
coverage:
	LLMQ_BUILD=$(CURDIR) $(srcdir)/test/coverage/run $(TESTS)

print-engine:
	@echo $(ENGINE_OBJS)

.PHONY: coverage print-engine

# The same on other majors too: Debians that have them, in folders of /var/tmp.
test-all: test
	LLMQ_TESTS="$(TESTS)" $(srcdir)/test/majors/run $(MAJORS)

# Programs and modules of older releases, built from the history, beside this version's SQL.
test-older:
	LLMQ_BUILD=$(CURDIR) $(srcdir)/test/older/run

.PHONY: test-older

# Against providers that nobody here wrote, fetched into the build folder.
test-peers:
	LLMQ_BUILD=$(CURDIR) $(srcdir)/test/peers/run $(TESTS)

# The documents, with what their examples print.
readme:
	LLMQ_BUILD=$(CURDIR) $(srcdir)/test/docs/run

demo:
	LLMQ_BUILD=$(CURDIR) $(srcdir)/test/demo/run

# SECONDS has a value of its own for fuzz.
bench-worker bench-queue bench-relay bench-scale bench-limits:
	LLMQ_BUILD=$(CURDIR) LOAD_SECONDS="$(if $(filter file, $(origin SECONDS)),$(LOAD_SECONDS),$(SECONDS))" $(srcdir)/test/bench/run $(@:bench-%=%)

# All of them that compare, and what the papers say of it; QUICK=1 for a look at the benches themselves.
bench:
	LLMQ_BUILD=$(CURDIR) QUICK="$(QUICK)" REPEATS="$(REPEATS)" $(srcdir)/test/bench/run report

# -- Archives for those who install from source: PGXN takes the .zip --------------------

DIST = llmq-$(EXTVERSION)

# Of the last commit, and of nothing else: whoever makes them anew gets the same bytes.
dist:
	TZ=UTC git -C $(srcdir) archive --format=zip --prefix=$(DIST)/ -9 HEAD >$(DIST).zip
	git -C $(srcdir) archive --format=tar --prefix=$(DIST)/ HEAD | gzip -n9 >$(DIST).tar.gz

# Debian's packages, in build/deb, with the tools that "test/setup-debian deb" installs.
deb: dist
	rm -rf build/deb
	$(MKDIR_P) build/deb
	cp $(DIST).tar.gz build/deb/llmq_$(EXTVERSION).orig.tar.gz
	tar -xf $(DIST).tar.gz -C build/deb
	git -C $(srcdir) archive --prefix=$(DIST)/debian/ HEAD:debian | tar -x -C build/deb
	cd build/deb/$(DIST) && env -u MAKEFLAGS -u MAKELEVEL dpkg-buildpackage -us -uc

test-dist test-deb:
	LLMQ_BUILD=$(CURDIR) $(srcdir)/test/packages/$(@:test-%=%)

.PHONY: dist deb test-dist test-deb

# torture kills, stops and disturbs everything, and asks whether the promises were kept; soak is a
# steady load, and asks whether anything grows.
torture soak:
	LLMQ_BUILD=$(CURDIR) SEED="$(SEED)" MINUTES="$(MINUTES)" KILLS="$(KILLS)" $(srcdir)/test/torture/run $@

# -- The house ---------------------------------------------------------------------------

CLANG_FORMAT ?= clang-format
C_FILES = $(wildcard $(foreach d, extension bgworker/* test/unit test/fuzz, $(srcdir)/$(d)/*.[ch]))

format:
	$(CLANG_FORMAT) -i $(C_FILES)

format-check:
	$(CLANG_FORMAT) --dry-run -Werror $(C_FILES)

# clang-tidy as .clang-tidy says, and cppcheck as test/cppcheck.txt says; -j2 helps.
LINT_FILES = $(abspath $(wildcard $(srcdir)/bgworker/*/*.c $(srcdir)/extension/*.c))
LINT_FLAGS = $(PG_CPPFLAGS) -D_GNU_SOURCE -I$(includedir_server) -I$(includedir_internal) -I$(LIBPQ_INCLUDE)
LINT_TIDY  = $(addprefix lint-, $(LINT_FILES))

$(LINT_TIDY): lint-%:
	@clang-tidy --quiet $(@:lint-%=%) -- -std=gnu11 $(LINT_FLAGS)

lint: $(LINT_TIDY) cppcheck

# Headers that are not ours it does not read; these macros of theirs it must know.
CPPCHECK_FLAGS = $(PG_CPPFLAGS) -DPG_VERSION_NUM=150000 -DLIBCURL_VERSION_NUM=0x075700 \
	'-Djson_object_foreach(o,k,v)=for(;;)' '-Djson_array_foreach(a,i,v)=for(;;)'

cppcheck:
	cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
		--suppressions-list=$(srcdir)/test/cppcheck.txt $(CPPCHECK_FLAGS) $(LINT_FILES)

.PHONY: lint cppcheck $(LINT_TIDY)

check-size:
	$(srcdir)/test/check-size

.PHONY: check-size

# TABLE=1 prints figures too.
check-layers: all
	@$(srcdir)/test/check-layers $(if $(TABLE),--table) $(MODULE_big)$(DLSUFFIX) $(OBJS) $(PROGRAM_OBJS)

.PHONY: debug-module fuzz unit pgtap setup test test-program test-all test-peers readme demo bench bench-worker bench-queue torture soak dist test-dist bench-relay bench-scale bench-limits format format-check check-layers

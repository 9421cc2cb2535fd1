# llmq: one Makefile for the module, its SQL script, and the tests.
# PGXS does what it can; the rules below do what it cannot express.

EXTENSION  = extension/llmq
EXTVERSION = $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" $(srcdir)/$(EXTENSION).control)
MODULE_big = llmq
PGFILEDESC = "llmq - durable LLM jobs in PostgreSQL"

# Plain C: no backend symbol, no libpq.
ENGINE_OBJS = \
	bgworker/arena.o \
	bgworker/buffer.o \
	bgworker/json_check.o \
	bgworker/json_slice.o \
	bgworker/json_write.o \
	bgworker/outcome.o \
	bgworker/provider.o \
	bgworker/provider_http.o \
	bgworker/provider_openai_chat.o \
	bgworker/ready.o \
	bgworker/retry.o

# Inside the server.
SERVER_OBJS = \
	extension/control.o \
	extension/database.o \
	extension/debug_point.o \
	extension/functions.o \
	extension/launcher.o \
	extension/llmq.o \
	extension/owner.o \
	extension/service.o \
	extension/settings.o \
	extension/shared.o \
	extension/submit.o \
	extension/wait.o \
	extension/wakeup.o

OBJS = $(SERVER_OBJS) $(ENGINE_OBJS) $(WIN32RES)

# State is created once; code is idempotent and replayed by every upgrade.
SQL_STATE   = sql/header.sql
SQL_CODE    =
INSTALL_SQL = sql/llmq--$(EXTVERSION).sql
DATA_built  = $(INSTALL_SQL)

CURL_CONFIG ?= curl-config
CURL_LIBS   := $(shell $(CURL_CONFIG) --libs)
ENGINE_LIBS  = $(CURL_LIBS) -ljansson

PG_CPPFLAGS = $(shell $(CURL_CONFIG) --cflags) -DLLMQ_VERSION='"$(EXTVERSION)"'
PG_CFLAGS   = -MMD -MP -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare
SHLIB_LINK  = $(ENGINE_LIBS)

EXTRA_CLEAN = $(DEPS) build

# Bitcode serves functions inlined into JIT-compiled expressions.  We have none,
# and it would make clang a build requirement.
override with_llvm = no

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# PGXS finds sources through VPATH but makes no object directories, and make
# would take the source directories for them.
ifneq ($(abspath $(srcdir)),$(CURDIR))
$(shell $(MKDIR_P) bgworker extension sql)
endif

# Packaged servers are often built with --disable-dependency-tracking.
DEPS = $(addsuffix .d, $(basename $(OBJS)))
-include $(DEPS)
$(OBJS): $(srcdir)/$(EXTENSION).control

# -- SQL ------------------------------------------------------------------------

$(INSTALL_SQL): $(SQL_STATE) $(SQL_CODE)
	cat $^ > $@

# -- Unit tests: plain programs, under the sanitizers ----------------------------

UNIT_TESTS   = $(notdir $(basename $(wildcard $(srcdir)/test/unit/*_test.c)))
UNIT_BUILD   = build/unit
UNIT_CFLAGS  = -std=gnu11 -g -O1 -Wall -Wextra -Werror -Wno-unused-parameter -fno-omit-frame-pointer \
	-fsanitize=address,undefined -fno-sanitize-recover=all -MMD -MP
UNIT_OBJS    = $(patsubst bgworker/%.o, $(UNIT_BUILD)/%.o, $(ENGINE_OBJS))
UNIT_PROGRAMS = $(addprefix $(UNIT_BUILD)/, $(UNIT_TESTS))
-include $(wildcard $(UNIT_BUILD)/*.d)

$(UNIT_BUILD)/%.o: $(srcdir)/bgworker/%.c
	@$(MKDIR_P) $(@D)
	$(CC) $(UNIT_CFLAGS) $(PG_CPPFLAGS) -c $< -o $@

$(UNIT_BUILD)/%_test: $(srcdir)/test/unit/%_test.c $(UNIT_OBJS)
	$(CC) $(UNIT_CFLAGS) $(PG_CPPFLAGS) $< $(UNIT_OBJS) $(ENGINE_LIBS) -lm -o $@

unit: $(UNIT_PROGRAMS)
	$(PROVE) --exec '' $(UNIT_PROGRAMS)

.PHONY: unit

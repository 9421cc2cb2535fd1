/*
 * options.c
 *		The command line of llmq-worker.
 */
#include "program/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_IN_FLIGHT_DEFAULT 1000
#define MAX_IN_FLIGHT_MOST	  100000
#define POLL_INTERVAL_DEFAULT 5.0
#define POLL_INTERVAL_LEAST	  0.1
#define DRAIN_DEFAULT		  30.0
#define SECONDS_MOST		  86400.0

static const char help[] =
	"llmq-worker runs the jobs of a database that has the extension llmq.\n"
	"\n"
	"Usage:\n"
	"  llmq-worker [OPTION]... [CONNECTION]\n"
	"\n"
	"CONNECTION is a name, a connection string or a URI, as for psql. What it does not say\n"
	"comes from the environment (PGHOST ...), the service file and the password file.\n"
	"\n"
	"Options:\n"
	"  -n, --name=NAME               name in llmq.worker (default: the machine's)\n"
	"  -m, --max-in-flight=NUMBER    network calls at once (default: 1000)\n"
	"  -q, --queue=QUEUE             serve this queue alone; may be repeated (default: all)\n"
	"  -s, --secrets-directory=DIR   folder of the files that hold the secrets\n"
	"      --poll-interval=SECONDS   between two looks of an idle worker (default: 5)\n"
	"      --drain=SECONDS           time that calls under way have to end, when this program\n"
	"                                is told to (default: 30)\n"
	"      --metrics=[ADDRESS:]PORT  serve metrics for Prometheus there (default: do not; the\n"
	"                                address is loopback unless it is given)\n"
	"      --once                    end when there is nothing more to do just now\n"
	"      --pooler=session|transaction\n"
	"                                what the pooler in between lends (default: find out)\n"
	"      --log-format=text|json    (default: text)\n"
	"      --log-level=debug|info|warning\n"
	"                                (default: info)\n"
	"  -h, --help                    show this and end\n"
	"  -V, --version                 show the version and end\n"
	"\n"
	"SIGTERM and SIGINT let calls under way end, a second one ends them.\n"
	"Exit status: 0 done, 1 the machine refuses, 2 bad usage, 3 other protocol version,\n"
	"4 ended while the database was away.\n";

enum
{
	OPTION_POLL_INTERVAL = 256,
	OPTION_DRAIN,
	OPTION_METRICS,
	OPTION_ONCE,
	OPTION_POOLER,
	OPTION_LOG_FORMAT,
	OPTION_LOG_LEVEL
};

static const struct option long_options[] = {
	{"name", required_argument, NULL, 'n'},
	{"max-in-flight", required_argument, NULL, 'm'},
	{"queue", required_argument, NULL, 'q'},
	{"secrets-directory", required_argument, NULL, 's'},
	{"poll-interval", required_argument, NULL, OPTION_POLL_INTERVAL},
	{"drain", required_argument, NULL, OPTION_DRAIN},
	{"metrics", required_argument, NULL, OPTION_METRICS},
	{"once", no_argument, NULL, OPTION_ONCE},
	{"pooler", required_argument, NULL, OPTION_POOLER},
	{"log-format", required_argument, NULL, OPTION_LOG_FORMAT},
	{"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0},
};

/* Prints what is wrong with an option; always returns false. */
static bool
refuse(const char *option, const char *value, const char *wanted)
{
	fprintf(stderr, "llmq-worker: --%s is \"%s\", and must be %s\n", option, value, wanted);
	return false;
}

static bool
read_number(const char *option, const char *text, double least, double most, double *number)
{
	char range[64];
	char *end;

	errno = 0;
	*number = strtod(text, &end);
	if (errno == 0 && end != text && *end == '\0' && *number >= least && *number <= most)
		return true;
	snprintf(range, sizeof(range), "a number from %g to %.0f", least, most);
	return refuse(option, text, range);
}

static bool
read_max_in_flight(LlmqOptions *options, const char *text)
{
	double number;

	if (!read_number("max-in-flight", text, 1, MAX_IN_FLIGHT_MOST, &number))
		return false;
	options->max_in_flight = (int) number;
	return true;
}

static bool
read_seconds(const char *option, const char *text, double least, int64_t *span_us)
{
	double seconds;

	if (!read_number(option, text, least, SECONDS_MOST, &seconds))
		return false;
	*span_us = (int64_t) (seconds * 1e6);
	return true;
}

/* Reads one of several words; number is its position among them. */
static bool
read_word(const char *option, const char *text, const char *const *words, int *number)
{
	char wanted[128] = "";

	for (*number = 0; words[*number] != NULL; (*number)++)
	{
		size_t length = strlen(wanted);

		if (strcmp(words[*number], text) == 0)
			return true;
		snprintf(wanted + length, sizeof(wanted) - length, "%s%s", length > 0 ? " or " : "",
				 words[*number]);
	}
	return refuse(option, text, wanted);
}

static bool
read_pooler(LlmqOptions *options, const char *text)
{
	int word;

	if (!read_word("pooler", text, (const char *[]){"session", "transaction", NULL}, &word))
		return false;
	options->pooler = word == 0 ? LLMQ_POOLER_SESSION : LLMQ_POOLER_TRANSACTION;
	return true;
}

static bool
read_log_format(LlmqOptions *options, const char *text)
{
	int word;

	if (!read_word("log-format", text, (const char *[]){"text", "json", NULL}, &word))
		return false;
	options->log_json = word == 1;
	return true;
}

static bool
read_log_level(LlmqOptions *options, const char *text)
{
	int word;

	if (!read_word("log-level", text, (const char *[]){"debug", "info", "warning", NULL}, &word))
		return false;
	options->log_level = (LlmqLogLevel) word;
	return true;
}

static bool
read_name(LlmqOptions *options, const char *text)
{
	if (text[0] == '\0' || strlen(text) >= sizeof(options->name))
		return refuse("name", text, "1 to 63 bytes long");
	snprintf(options->name, sizeof(options->name), "%s", text);
	return true;
}

static bool
read_metrics(LlmqOptions *options, const char *text)
{
	if (llmq_metric_address_read(text, &options->metrics))
		return true;
	return refuse("metrics", text, "[ADDRESS:]PORT, as in 9464, 10.0.0.5:9464 or [::1]:9464");
}

static bool
add_queue(LlmqOptions *options, const char *name)
{
	if (options->queue_count == LLMQ_QUEUES_MAX)
		return refuse("queue", name, "one of 64 at most");
	options->queues[options->queue_count++] = name;
	return true;
}

static bool
read_option(LlmqOptions *options, int option, const char *value)
{
	switch (option)
	{
		case 'n':
			return read_name(options, value);
		case 'm':
			return read_max_in_flight(options, value);
		case 'q':
			return add_queue(options, value);
		case 's':
			options->secrets_directory = value;
			return true;
		case OPTION_POLL_INTERVAL:
			return read_seconds("poll-interval", value, POLL_INTERVAL_LEAST,
								&options->poll_interval_us);
		case OPTION_DRAIN:
			return read_seconds("drain", value, 0, &options->drain_us);
		case OPTION_METRICS:
			return read_metrics(options, value);
		case OPTION_ONCE:
			options->once = true;
			return true;
		case OPTION_POOLER:
			return read_pooler(options, value);
		case OPTION_LOG_FORMAT:
			return read_log_format(options, value);
		case OPTION_LOG_LEVEL:
			return read_log_level(options, value);
		default:
			return false; /* getopt has printed the reason */
	}
}

static void
set_defaults(LlmqOptions *options)
{
	*options = (LlmqOptions){.conninfo = "",
							 .max_in_flight = MAX_IN_FLIGHT_DEFAULT,
							 .poll_interval_us = (int64_t) (POLL_INTERVAL_DEFAULT * 1e6),
							 .drain_us = (int64_t) (DRAIN_DEFAULT * 1e6),
							 .log_level = LLMQ_LOG_INFO};
	if (gethostname(options->name, sizeof(options->name)) != 0 || options->name[0] == '\0')
		snprintf(options->name, sizeof(options->name), "worker");
	options->name[sizeof(options->name) - 1] = '\0';
}

bool
llmq_options_read(LlmqOptions *options, int argc, char **argv, LlmqExit *status)
{
	int option;

	set_defaults(options);
	*status = LLMQ_EXIT_USAGE;
	while ((option = getopt_long(argc, argv, "n:m:q:s:hV", long_options, NULL)) != -1)
	{
		if (option == 'h' || option == 'V')
		{
			fputs(option == 'h' ? help : "llmq-worker " LLMQ_VERSION "\n", stdout);
			*status = fflush(stdout) == 0 ? LLMQ_EXIT_DONE : LLMQ_EXIT_MACHINE;
			return false;
		}
		if (!read_option(options, option, optarg))
		{
			fputs("Try \"llmq-worker --help\".\n", stderr);
			return false;
		}
	}
	if (optind < argc)
		options->conninfo = argv[optind++];
	if (optind < argc)
	{
		fprintf(stderr, "llmq-worker: \"%s\" is one argument too many\n", argv[optind]);
		return false;
	}
	return true;
}

/* An asynchronous load through libnfs: what a program gets today that reads and writes an NFS export from user
 * space. crates/client/examples/load.rs does the same through our client: same arguments, same files, same line.
 *
 *   load HOST PORT MOUNT_PORT EXPORT MODE BLOCK_BYTES DEPTH CONNECTIONS SECONDS FILE_MIB
 *
 * Connection N works on the file load.N with DEPTH requests in flight, on a thread of its own. MODE:
 *   fill                 write the whole file once, in order (SECONDS is ignored)
 *   read, write          in order, from the start again at the end, for SECONDS
 *   randread, randwrite  blocks at random
 *   check                read the whole file once and compare every byte
 * The first 16 bytes of each 4 KiB are a stamp: the file's number and the page's place in it, little endian.
 * Every read checks the stamps of what it got; a wrong one ends the program with status 1. Writes are what
 * libnfs sends by default: UNSTABLE, and no COMMIT until the file is synced after the last of them.
 *
 * Build: cc -O2 load.c -lnfs -lpthread
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include <nfsc/libnfs.h>

enum { PAGE = 4096, STAMP = 16, CONNECTIONS_MAX = 64, DEPTH_MAX = 1024, SERVICE_EVERY_MS = 50 };

struct options {
	const char *host, *export, *mode;
	int port, mount_port, depth, connections;
	uint64_t block, blocks;
	double seconds;
	bool writes, random, once, every_byte;
};

struct connection;

/* One request in flight. */
struct slot {
	struct connection *owner;
	uint64_t offset;
	uint8_t *buffer;
};

struct connection {
	const struct options *options;
	uint64_t number, issued, finished, pages_checked, random;
	unsigned in_flight;
	double deadline, ended;
	struct nfs_context *nfs;
	struct nfsfh *file;
	struct slot slots[DEPTH_MAX];
	pthread_t thread;
};

static double clock_seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fail(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fputs("load: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	exit(1);
}

/* What every page holds behind its stamp. */
static uint8_t noise(unsigned at)
{
	return (uint8_t)(at * 167 + (at >> 8) * 13);
}

static void put_le64(uint8_t *to, uint64_t value)
{
	for (int byte = 0; byte < 8; byte++)
		to[byte] = (uint8_t)(value >> (8 * byte));
}

static void stamp_block(uint8_t *block, uint64_t bytes, uint64_t file, uint64_t offset)
{
	for (uint64_t at = 0; at < bytes; at += PAGE) {
		put_le64(block + at, file);
		put_le64(block + at + 8, (offset + at) / PAGE);
	}
}

static void check_block(struct connection *connection, const uint8_t *block, uint64_t offset)
{
	const struct options *options = connection->options;
	for (uint64_t at = 0; at < options->block; at += PAGE) {
		uint8_t wanted[STAMP];
		stamp_block(wanted, PAGE, connection->number, offset + at);
		if (memcmp(block + at, wanted, STAMP))
			fail("load.%" PRIu64 ": wrong stamp at byte %" PRIu64, connection->number, offset + at);
		for (unsigned byte = STAMP; options->every_byte && byte < PAGE; byte++)
			if (block[at + byte] != noise(byte))
				fail("load.%" PRIu64 ": wrong byte at %" PRIu64, connection->number, offset + at + byte);
		connection->pages_checked++;
	}
}

/* Whether another request is to be sent, and where. */
static bool next_offset(struct connection *connection, uint64_t *offset)
{
	const struct options *options = connection->options;
	if (options->once ? connection->issued == options->blocks : clock_seconds() >= connection->deadline)
		return false;
	uint64_t block = connection->issued % options->blocks;
	if (options->random) {
		/* xorshift64, seeded with the file's number. */
		connection->random ^= connection->random << 13;
		connection->random ^= connection->random >> 7;
		connection->random ^= connection->random << 17;
		block = connection->random % options->blocks;
	}
	connection->issued++;
	*offset = block * options->block;
	return true;
}

static void answered(int status, struct nfs_context *nfs, void *data, void *argument);

static void submit(struct slot *slot)
{
	struct connection *connection = slot->owner;
	const struct options *options = connection->options;
	if (!next_offset(connection, &slot->offset))
		return;
	int refused;
	if (options->writes) {
		stamp_block(slot->buffer, options->block, connection->number, slot->offset);
		refused = nfs_pwrite_async(connection->nfs, connection->file, slot->offset, options->block,
					   slot->buffer, answered, slot);
	} else {
		refused = nfs_pread_async(connection->nfs, connection->file, slot->offset, options->block,
					  answered, slot);
	}
	if (refused)
		fail("cannot submit at byte %" PRIu64 ": %s", slot->offset, nfs_get_error(connection->nfs));
	connection->in_flight++;
}

static void answered(int status, struct nfs_context *nfs, void *data, void *argument)
{
	struct slot *slot = argument;
	struct connection *connection = slot->owner;
	if (status < 0)
		fail("request at byte %" PRIu64 ": %s", slot->offset, nfs_get_error(nfs));
	if ((uint64_t)status != connection->options->block)
		fail("request at byte %" PRIu64 " moved only %d bytes", slot->offset, status);
	if (!connection->options->writes)
		check_block(connection, data, slot->offset);
	connection->in_flight--;
	connection->finished++;
	submit(slot);
}

static void *run(void *argument)
{
	struct connection *connection = argument;
	connection->deadline = clock_seconds() + connection->options->seconds;
	for (int slot = 0; slot < connection->options->depth; slot++)
		submit(&connection->slots[slot]);
	while (connection->in_flight) {
		struct pollfd ready = { .fd = nfs_get_fd(connection->nfs),
					.events = (short)nfs_which_events(connection->nfs) };
		if (poll(&ready, 1, SERVICE_EVERY_MS) < 0 && errno != EINTR)
			fail("poll: %s", strerror(errno));
		if (nfs_service(connection->nfs, ready.revents) < 0)
			fail("connection: %s", nfs_get_error(connection->nfs));
	}
	connection->ended = clock_seconds();
	if (connection->options->writes && nfs_fsync(connection->nfs, connection->file))
		fail("fsync: %s", nfs_get_error(connection->nfs));
	return NULL;
}

static void open_connection(struct connection *connection)
{
	const struct options *options = connection->options;
	char url[512], name[32];
	snprintf(url, sizeof url, "nfs://%s%s?nfsport=%d&mountport=%d", options->host, options->export,
		 options->port, options->mount_port);
	connection->nfs = nfs_init_context();
	if (!connection->nfs)
		fail("no memory for a context");
	struct nfs_url *parsed = nfs_parse_url_dir(connection->nfs, url);
	if (!parsed)
		fail("%s: %s", url, nfs_get_error(connection->nfs));
	if (nfs_mount(connection->nfs, parsed->server, parsed->path))
		fail("cannot mount %s: %s", url, nfs_get_error(connection->nfs));
	nfs_destroy_url(parsed);
	snprintf(name, sizeof name, "/load.%" PRIu64, connection->number);
	int status = !strcmp(options->mode, "fill")
			     ? nfs_creat(connection->nfs, name, 0666, &connection->file)
			     : nfs_open(connection->nfs, name, options->writes ? O_RDWR : O_RDONLY,
					&connection->file);
	if (status)
		fail("cannot open %s: %s", name, nfs_get_error(connection->nfs));
	for (int slot = 0; slot < options->depth; slot++) {
		uint8_t *buffer = malloc(options->block);
		if (!buffer)
			fail("no memory for %d blocks", options->depth);
		for (uint64_t at = 0; at < options->block; at++)
			buffer[at] = noise(at % PAGE);
		connection->slots[slot] = (struct slot){ .owner = connection, .buffer = buffer };
	}
}

static uint64_t number(const char *text, uint64_t low, uint64_t high)
{
	char *end;
	errno = 0;
	uint64_t value = strtoull(text, &end, 10);
	if (errno || *end || end == text || value < low || value > high) {
		fprintf(stderr, "load: %s is not a number from %" PRIu64 " to %" PRIu64 "\n", text, low, high);
		exit(2);
	}
	return value;
}

static struct options parse(char **arguments)
{
	struct options options = { .host = arguments[1], .export = arguments[4], .mode = arguments[5] };
	const char *mode = options.mode;
	options.port = (int)number(arguments[2], 1, 65535);
	options.mount_port = (int)number(arguments[3], 1, 65535);
	options.block = number(arguments[6], PAGE, 1 << 20) / PAGE * PAGE;
	options.depth = (int)number(arguments[7], 1, DEPTH_MAX);
	options.connections = (int)number(arguments[8], 1, CONNECTIONS_MAX);
	options.seconds = atof(arguments[9]);
	options.blocks = (number(arguments[10], 1, 1 << 20) << 20) / options.block;
	options.random = !strncmp(mode, "rand", 4);
	options.writes = !strcmp(mode, "fill") || !strcmp(mode, "write") || !strcmp(mode, "randwrite");
	options.every_byte = !strcmp(mode, "check");
	options.once = options.every_byte || !strcmp(mode, "fill");
	if (!options.writes && !options.every_byte && strcmp(mode, "read") && strcmp(mode, "randread")) {
		fprintf(stderr, "load: there is no mode %s\n", mode);
		exit(2);
	}
	return options;
}

int main(int count, char **arguments)
{
	if (count != 11) {
		fputs("usage: load HOST PORT MOUNT_PORT EXPORT MODE BLOCK_BYTES DEPTH CONNECTIONS SECONDS FILE_MIB\n",
		      stderr);
		return 2;
	}
	struct options options = parse(arguments);
	struct connection *all = calloc((size_t)options.connections, sizeof *all);
	if (!all)
		fail("no memory for %d connections", options.connections);
	for (int index = 0; index < options.connections; index++) {
		all[index].options = &options;
		all[index].number = (uint64_t)index;
		all[index].random = 0x9e3779b97f4a7c15ull * (uint64_t)(index + 1);
		open_connection(&all[index]);
	}
	double started = clock_seconds(), ended = started;
	for (int index = 0; index < options.connections; index++)
		if (pthread_create(&all[index].thread, NULL, run, &all[index]))
			fail("cannot start a thread");
	uint64_t operations = 0, pages = 0;
	for (int index = 0; index < options.connections; index++) {
		pthread_join(all[index].thread, NULL);
		operations += all[index].finished;
		pages += all[index].pages_checked;
		ended = all[index].ended > ended ? all[index].ended : ended;
	}
	double seconds = ended - started;
	printf("%s block=%" PRIu64 " depth=%d connections=%d operations=%" PRIu64 " pages_checked=%" PRIu64
	       " seconds=%.3f iops=%.0f gbytes_per_s=%.3f\n",
	       options.mode, options.block, options.depth, options.connections, operations, pages, seconds,
	       (double)operations / seconds, (double)operations * (double)options.block / seconds / 1e9);
	return 0;
}

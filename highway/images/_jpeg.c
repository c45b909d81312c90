/* A box of a JPEG: decoded, scaled, mirrored and written into the row of a batch. The optional first choice of highway/images/decode.py.
 *
 * libjpeg-turbo decodes no more than the box: beside and above it there is Huffman decoding only (jpeg_crop_scanline, jpeg_skip_scanlines),
 * below it nothing. Rows go through a ring of four, are mixed downwards (whole rows: vector code), then sideways, straight into `out`.
 *
 * Positions are fractions of whole numbers; weights have 14 bits and add up to 1 << 14; a mixed row holds 64ths of a level as int16, and is
 * rounded once. So results are the same in every thread, call and process.
 *
 * All memory belongs to a Worker, which is taken from a list and put back while the interpreter's lock is held (a Python without the lock
 * takes it for this module), and used by one thread without it. libjpeg's errors leave by longjmp to `decode`, which owns nothing that would
 * have to be freed. Warnings count as errors.
 *
 * A Run does so for many files: one call reads them and their headers, one decodes them all, both without the interpreter's lock. It takes
 * plain JPEGs alone. Whatever is not one, or cannot be opened, read or decoded, it leaves to its caller, who finds out why: a row that it
 * has not filled is no error here.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jpeglib.h>

#include <jerror.h>

#if LIBJPEG_TURBO_VERSION_NUMBER < 2001000
#error "needs libjpeg-turbo 2.1 or later: older ones skip rows wrongly, and other libjpegs not at all"
#endif

enum { RING = 4, ONE = 1 << 14, HALF = 32 };
enum { MOST_SCANS = 500 }; /* a progressive photograph has about 10, and each is a pass over the image */
enum { FAILED = 1, NO_MEMORY = 2 };
enum { MOST_BYTES = 1 << 24, KEPT_BYTES = 1 << 23 }; /* of the files of a run that are in memory at once; and between two runs */

typedef struct {
    const unsigned char* data;
    size_t nbytes;
    int image_height, image_width; /* as stored; what the file must announce */
    int reduction;                 /* by which libjpeg shrinks: 1, 2, 4 or 8 */
    int top, left, rows, columns;  /* the box, in pixels of the image as stored */
    unsigned char* out;            /* height x width x 3 bytes */
    int height, width;
    int flipped, antialias;
} Request;

/* How pixels are mixed in one direction: output i is the sum of `taps` neighbours from first[i] on, times weights[i * taps ...]. */
typedef struct {
    int begin, count; /* the pixels of the reduced image that are looked at; `first` counts from `begin` */
    int size, taps;
    int* first;
    int16_t* weights;
} Axis;

typedef struct {
    void* data;
    size_t nbytes;
} Memory;

typedef struct Worker {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf escape;
    char message[JMSG_LENGTH_MAX];
    Memory ring, mixed, sums, lefts, rights, fractions, first[2], weights[2];
    struct Worker* next;
} Worker;

/* ---- errors and memory: what fails does not return */

static void fail(Worker* worker, const char* message) {
    snprintf(worker->message, sizeof worker->message, "%s", message);
    longjmp(worker->escape, FAILED);
}

static void on_error(j_common_ptr jpeg) {
    Worker* worker = jpeg->client_data;
    jpeg->err->format_message(jpeg, worker->message);
    longjmp(worker->escape, jpeg->err->msg_code == JERR_OUT_OF_MEMORY ? NO_MEMORY : FAILED);
}

static void on_message(j_common_ptr jpeg, int level) {
    if (level < 0) on_error(jpeg);
}

static void on_progress(j_common_ptr jpeg) {
    if (((j_decompress_ptr)jpeg)->input_scan_number > MOST_SCANS) fail(jpeg->client_data, "more scans than any photograph has");
}

static void* room(Worker* worker, Memory* memory, size_t nbytes) {
    if (memory->nbytes < nbytes) {
        free(memory->data);
        memory->nbytes = 0;
        memory->data = malloc(nbytes);
        if (!memory->data) longjmp(worker->escape, NO_MEMORY);
        memory->nbytes = nbytes;
    }
    return memory->data;
}

/* ---- where the pixels of the output come from */

static int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* Between the two nearest pixels. Centres are at halves, as in OpenCV's INTER_LINEAR; beyond the edge the pixel at the edge is repeated. */
static void plan_bilinear(Axis* axis, int64_t start, int64_t length, int64_t reduction) {
    int64_t unit = 2 * reduction * axis->size, origin = (2 * start - reduction) * axis->size - axis->begin * unit;
    for (int i = 0; i < axis->size; i++) {
        int64_t place = origin + (2 * i + 1) * length, at = floor_divide(place, unit), part = (place - at * unit) * ONE / unit;
        if (at < 0) at = part = 0;
        if (at >= axis->count - 1) at = axis->count - 1, part = 0;
        axis->first[i] = (int)at;
        axis->weights[2 * i] = (int16_t)(ONE - part);
        axis->weights[2 * i + 1] = (int16_t)part;
    }
}

/* The mean of all that falls on the output pixel, in part or whole; for a reduction of 1, where `begin` is the start of the box. */
static void plan_area(Axis* axis) {
    int64_t length = axis->count, size = axis->size;
    for (int64_t i = 0; i < size; i++) {
        int64_t from = i * length, to = from + length, at = from / size, before = 0;
        if (at > length - axis->taps) at = length - axis->taps;
        axis->first[i] = (int)at;
        for (int tap = 0; tap < axis->taps; tap++) {
            int64_t edge = (at + tap + 1) * size, share = edge < from ? from : edge > to ? to : edge;
            int64_t until = ((share - from) * ONE + length / 2) / length; /* rounding the sum so far makes the whole ONE */
            axis->weights[i * axis->taps + tap] = (int16_t)(until - before);
            before = until;
        }
    }
}

static Axis plan(Worker* worker, int which, int start, int length, int size, const Request* request) {
    Axis axis = {.begin = start / request->reduction, .size = size, .taps = 2};
    axis.count = (start + length - 1) / request->reduction + 1 - axis.begin;
    int area = request->antialias && request->reduction == 1 && length > size;
    if (area) axis.taps = (length + size - 1) / size + 1 < length ? (length + size - 1) / size + 1 : length;
    axis.first = room(worker, &worker->first[which], size * sizeof *axis.first);
    axis.weights = room(worker, &worker->weights[which], (size_t)size * axis.taps * sizeof *axis.weights);
    if (area)
        plan_area(&axis);
    else
        plan_bilinear(&axis, start, length, request->reduction);
    return axis;
}

/* ---- mixing; values of a source row are bytes, of a mixed row 64ths in int16, with a HALF for rounding */

static void mix_two_rows(int16_t* restrict mixed, const unsigned char* restrict upper, const unsigned char* restrict lower, int part,
                         int n) {
    int16_t weight = (int16_t)(2 * part);
    for (int i = 0; i < n; i++) {
        int16_t step = (int16_t)((lower[i] - upper[i]) * 128);
        mixed[i] = (int16_t)(upper[i] * 64 + HALF + (int16_t)((step * weight) >> 16));
    }
}

static void add_row(int32_t* restrict sums, const unsigned char* restrict row, int16_t weight, int n) {
    for (int i = 0; i < n; i++) sums[i] += (int16_t)row[i] * weight;
}

static void finish_sums(int16_t* restrict mixed, const int32_t* restrict sums, int n) {
    for (int i = 0; i < n; i++) mixed[i] = (int16_t)((sums[i] >> 8) + HALF);
}

/* Four values per pixel, of which the fourth is not used, so that copies are of 8 bytes and the arithmetic is of whole vectors. */
static void mix_two_columns(unsigned char* out, const int16_t* mixed, const Axis* axis, int16_t* lefts, int16_t* rights,
                            const int16_t* fractions) {
    int size = axis->size;
    for (int i = 0; i < size; i++) {
        const int16_t* pixel = mixed + 3 * axis->first[i];
        memcpy(lefts + 4 * i, pixel, 8);
        memcpy(rights + 4 * i, pixel + 3, 8);
    }
    unsigned char* bytes = (unsigned char*)rights;
    for (int i = 0; i < 4 * size; i++) {
        int16_t step = (int16_t)((rights[i] - lefts[i]) * 2);
        int16_t value = (int16_t)(lefts[i] + (int16_t)((step * fractions[i]) >> 16));
        lefts[i] = (int16_t)(value >> 6);
    }
    for (int i = 0; i < 4 * size; i++) bytes[i] = (unsigned char)lefts[i];
    for (int i = 0; i < size - 1; i++) memcpy(out + 3 * i, bytes + 4 * i, 4);
    memcpy(out + 3 * (size - 1), bytes + 4 * (size - 1), 3);
}

static void mix_columns(unsigned char* out, const int16_t* mixed, const Axis* axis) {
    const int16_t* weights = axis->weights;
    for (int i = 0; i < axis->size; i++, out += 3, weights += axis->taps) {
        const int16_t* pixel = mixed + 3 * axis->first[i];
        int32_t red = 0, green = 0, blue = 0;
        for (int tap = 0; tap < axis->taps; tap++, pixel += 3) {
            red += pixel[0] * weights[tap];
            green += pixel[1] * weights[tap];
            blue += pixel[2] * weights[tap];
        }
        out[0] = (unsigned char)(red >> 20), out[1] = (unsigned char)(green >> 20), out[2] = (unsigned char)(blue >> 20);
    }
}

/* Turn the output left to right by turning the plan. */
static void mirror(Axis* axis) {
    for (int i = 0, j = axis->size - 1; i < j; i++, j--) {
        int first = axis->first[i];
        axis->first[i] = axis->first[j], axis->first[j] = first;
        for (int tap = 0; tap < axis->taps; tap++) {
            int16_t *one = axis->weights + i * axis->taps + tap, *other = axis->weights + j * axis->taps + tap, weight = *one;
            *one = *other, *other = weight;
        }
    }
}

/* ---- decoding */

/* The rows of the reduced image, read in order. */
typedef struct {
    unsigned char* ring;
    size_t stride;
    int offset, next, last; /* bytes to the first pixel that is looked at; rows from the first that is */
} Rows;

/* Return a row; beyond the last one, the last. Afterwards this row and the one before can be used. */
static const unsigned char* row_at(struct jpeg_decompress_struct* jpeg, Rows* rows, int row) {
    if (row > rows->last) row = rows->last;
    while (rows->next <= row) {
        JSAMPROW pair[2] = {rows->ring + rows->next % RING * rows->stride, rows->ring + (rows->next + 1) % RING * rows->stride};
        rows->next += (int)jpeg_read_scanlines(jpeg, pair, rows->next < rows->last ? 2 : 1);
    }
    return rows->ring + row % RING * rows->stride + rows->offset;
}

/* Start at the box's first row, with as few columns as libjpeg can. */
static Rows start(Worker* worker, const Axis* down, const Axis* across) {
    struct jpeg_decompress_struct* jpeg = &worker->jpeg;
    jpeg_start_decompress(jpeg);
    JDIMENSION left = across->begin, width = across->count;
    if (width < jpeg->output_width) jpeg_crop_scanline(jpeg, &left, &width);
    Rows rows = {.stride = (size_t)jpeg->output_width * 3, .offset = (across->begin - (int)left) * 3, .last = down->count - 1};
    rows.ring = room(worker, &worker->ring, RING * rows.stride);
    if (down->begin) jpeg_skip_scanlines(jpeg, down->begin);
    return rows;
}

static void copy_row(unsigned char* out, const unsigned char* row, int width, int flipped) {
    if (flipped)
        for (int x = width; x-- > 0; out += 3) memcpy(out, row + 3 * x, 3);
    else
        memcpy(out, row, (size_t)3 * width);
}

static void copy_box(Worker* worker, Rows* rows, const Request* request) {
    for (int y = 0; y < request->height; y++)
        copy_row(request->out + (size_t)3 * y * request->width, row_at(&worker->jpeg, rows, y), request->width, request->flipped);
}

static void scale_box(Worker* worker, Rows* rows, const Axis* down, const Axis* across, const Request* request) {
    struct jpeg_decompress_struct* jpeg = &worker->jpeg;
    int values = 3 * across->count, width = request->width;
    int16_t* mixed = room(worker, &worker->mixed, (values + 4) * sizeof *mixed); /* a neighbour, of weight 0, for the last pixel */
    int32_t* sums = room(worker, &worker->sums, values * sizeof *sums);
    int16_t *lefts = room(worker, &worker->lefts, (size_t)8 * width), *rights = room(worker, &worker->rights, (size_t)8 * width);
    int16_t* fractions = room(worker, &worker->fractions, (size_t)8 * width);
    memset(mixed + values, 0, 4 * sizeof *mixed);
    for (int i = 0; across->taps == 2 && i < 4 * width; i++) fractions[i] = (int16_t)(2 * across->weights[i / 4 * 2 + 1]);
    for (int y = 0; y < request->height; y++) {
        const int16_t* weights = down->weights + (size_t)y * down->taps;
        if (down->taps == 2) {
            const unsigned char *lower = row_at(jpeg, rows, down->first[y] + 1), *upper = row_at(jpeg, rows, down->first[y]);
            mix_two_rows(mixed, upper, lower, weights[1], values);
        } else {
            memset(sums, 0, values * sizeof *sums);
            for (int tap = 0; tap < down->taps; tap++)
                if (weights[tap]) add_row(sums, row_at(jpeg, rows, down->first[y] + tap), weights[tap], values);
            finish_sums(mixed, sums, values);
        }
        unsigned char* out = request->out + (size_t)3 * y * width;
        if (across->taps == 2)
            mix_two_columns(out, mixed, across, lefts, rights, fractions);
        else
            mix_columns(out, mixed, across);
    }
}

/* Whether there is an end marker behind the header; libjpeg would notice only if it came that far. */
static int is_whole(const struct jpeg_decompress_struct* jpeg) {
    const unsigned char* data = jpeg->src->next_input_byte;
    for (size_t at = jpeg->src->bytes_in_buffer; at >= 2; at--)
        if (data[at - 1] == JPEG_EOI && data[at - 2] == 0xFF) return 1;
    return 0;
}

/* A new decompressor for each image: one that is used again keeps pointers into the memory of the last image, and jpeg_skip_scanlines
 * follows them (cconvert, left by an image that needed it, in one that merges upsampling and conversion). It costs a microsecond. */
static void open_jpeg(Worker* worker) {
    struct jpeg_decompress_struct* jpeg = &worker->jpeg;
    jpeg->err = jpeg_std_error(&worker->errors);
    jpeg->err->error_exit = on_error;
    jpeg->err->emit_message = on_message;
    jpeg->client_data = worker;
    jpeg_create_decompress(jpeg);
    worker->progress.progress_monitor = on_progress;
    jpeg->progress = &worker->progress;
}

static void decode_request(Worker* worker, const Request* request) {
    struct jpeg_decompress_struct* jpeg = &worker->jpeg;
    open_jpeg(worker);
    jpeg_mem_src(jpeg, request->data, (unsigned long)request->nbytes);
    jpeg_read_header(jpeg, TRUE);
    if ((int)jpeg->image_height != request->image_height || (int)jpeg->image_width != request->image_width)
        fail(worker, "it holds an image of another size than it announces");
    if (!is_whole(jpeg)) fail(worker, "it has no end marker");
    jpeg->out_color_space = JCS_RGB;
    jpeg->scale_num = 1;
    jpeg->scale_denom = (unsigned)request->reduction;
    jpeg->dct_method = JDCT_IFAST;
    jpeg->do_fancy_upsampling = FALSE;
    Axis down = plan(worker, 0, request->top, request->rows, request->height, request);
    Axis across = plan(worker, 1, request->left, request->columns, request->width, request);
    if (request->flipped) mirror(&across);
    Rows rows = start(worker, &down, &across);
    if (request->reduction == 1 && request->rows == request->height && request->columns == request->width)
        copy_box(worker, &rows, request);
    else
        scale_box(worker, &rows, &down, &across, request);
}

/* Return 0, FAILED (with worker->message) or NO_MEMORY. */
static int decode(Worker* worker, const Request* request) {
    memset(&worker->jpeg, 0, sizeof worker->jpeg);
    int result = setjmp(worker->escape);
    if (!result) decode_request(worker, request);
    jpeg_destroy_decompress(&worker->jpeg);
    return result;
}

/* ---- workers */

static void free_worker(Worker* worker) {
    Memory* all[] = {&worker->ring,      &worker->mixed,    &worker->sums,     &worker->lefts,      &worker->rights,
                     &worker->fractions, &worker->first[0], &worker->first[1], &worker->weights[0], &worker->weights[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->data);
    free(worker);
}

/* ---- the module */

typedef struct {
    Worker* idle;
} State;

static int is_within(const Request* r) {
    int down = r->top >= 0 && r->rows >= 1 && r->rows <= r->image_height && r->top <= r->image_height - r->rows;
    int across = r->left >= 0 && r->columns >= 1 && r->columns <= r->image_width && r->left <= r->image_width - r->columns;
    return down && across;
}

/* Return whether what is asked for makes sense, else set an exception. */
static int is_valid(const Request* r) {
    int reduced = r->reduction == 1 || r->reduction == 2 || r->reduction == 4 || r->reduction == 8;
    if (is_within(r) && reduced) return 1;
    PyErr_Format(PyExc_ValueError,
                 "box=(%d, %d, %d, %d), reduction=%d: expected a box within the image of %d x %d pixels, and 1, 2, 4 or 8", r->top, r->left,
                 r->rows, r->columns, r->reduction, r->image_height, r->image_width);
    return 0;
}

static int take_out(PyObject* object, Py_buffer* out, Request* request) {
    if (PyObject_GetBuffer(object, out, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) return 0;
    if (out->ndim == 3 && strcmp(out->format, "B") == 0 && out->shape[2] == 3 && out->shape[0] >= 1 && out->shape[1] >= 1 &&
        out->shape[0] <= JPEG_MAX_DIMENSION && out->shape[1] <= JPEG_MAX_DIMENSION) {
        request->out = out->buf;
        request->height = (int)out->shape[0];
        request->width = (int)out->shape[1];
        return 1;
    }
    PyErr_Format(PyExc_ValueError, "out: expected uint8 (H, W, 3) with sides from 1 to %d", (int)JPEG_MAX_DIMENSION);
    PyBuffer_Release(out);
    return 0;
}

static PyObject* decode_crop(PyObject* module, PyObject* args) {
    State* state = PyModule_GetState(module);
    Request request = {0};
    Py_buffer data, out;
    PyObject* target;
    if (!PyArg_ParseTuple(args, "y*(ii)(iiii)iOpp:decode_crop", &data, &request.image_height, &request.image_width, &request.top,
                          &request.left, &request.rows, &request.columns, &request.reduction, &target, &request.flipped,
                          &request.antialias))
        return NULL;
    request.data = data.buf;
    request.nbytes = (size_t)data.len;
    if (!is_valid(&request) || !take_out(target, &out, &request)) {
        PyBuffer_Release(&data);
        return NULL;
    }
    Worker* worker = state->idle;
    if (worker)
        state->idle = worker->next;
    else
        worker = calloc(1, sizeof *worker);
    int result = NO_MEMORY;
    if (worker) {
        Py_BEGIN_ALLOW_THREADS;
        result = decode(worker, &request);
        Py_END_ALLOW_THREADS;
        if (result == FAILED) PyErr_SetString(PyExc_ValueError, worker->message);
        worker->next = state->idle;
        state->idle = worker;
    }
    if (result == NO_MEMORY) PyErr_NoMemory();
    PyBuffer_Release(&out);
    PyBuffer_Release(&data);
    return result ? NULL : Py_NewRef(Py_None);
}

/* ---- headers, read as images/header.py does */

static unsigned be16(const unsigned char* at) { return (unsigned)at[0] << 8 | at[1]; }

/* Return the orientation in an Exif block, or 1 if it has none or is damaged. */
static unsigned orientation_of(const unsigned char* tiff, size_t nbytes) {
    if (nbytes < 8 || tiff[0] != tiff[1] || (tiff[0] != 'I' && tiff[0] != 'M')) return 1;
    int little = tiff[0] == 'I';
#define TWO(at) (little ? be16((const unsigned char[]){tiff[(at) + 1], tiff[at]}) : be16(tiff + (at)))
    size_t at = little ? (size_t)TWO(6) << 16 | TWO(4) : (size_t)TWO(4) << 16 | TWO(6);
    if (at > nbytes - 2) return 1;
    size_t entries = TWO(at);
    for (at += 2; entries-- && at + 10 <= nbytes; at += 12) {
        if (TWO(at) != 0x0112 || TWO(at + 2) != 3) continue;
        unsigned value = TWO(at + 8);
        return value >= 1 && value <= 8 ? value : 1;
    }
#undef TWO
    return 1;
}

/* Find the size in the header of a JPEG that libjpeg makes RGB of and that stands upright; return whether it is one. */
static int read_size(const unsigned char* data, size_t nbytes, int* height, int* width) {
    unsigned orientation = 1;
    size_t at = 2;
    if (nbytes < 4 || be16(data) != 0xFFD8) return 0;
    while (at < nbytes && data[at] == 0xFF) {
        while (at < nbytes && data[at] == 0xFF) at++;
        if (at >= nbytes) return 0;
        unsigned marker = data[at++];
        if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD7)) continue;
        if (at + 2 > nbytes) return 0;
        size_t length = be16(data + at), left = nbytes - at;
        if (marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC) {
            if (left < 8) return 0;
            *height = (int)be16(data + at + 3), *width = (int)be16(data + at + 5);
            return *height > 0 && *width > 0 && (data[at + 7] == 1 || data[at + 7] == 3) && orientation == 1;
        }
        if (marker == 0xE1 && left >= 8 && memcmp(data + at + 2, "Exif\0", 6) == 0)
            orientation = length > 8 ? orientation_of(data + at + 8, (length < left ? length : left) - 8) : 1;
        at += length;
    }
    return 0;
}

/* ---- runs */

typedef struct {
    PyObject* path;        /* as bytes; NULL: none was given, or no file can have it */
    Py_buffer content;     /* of the file, if that was given (`obj` is not NULL); else it begins at `offset` of the run's memory */
    size_t offset, nbytes; /* 0: it was not read */
    int height, width;     /* 0: it is not a JPEG for us */
    int failed;            /* whether it was to be decoded, and could not be */
} File;

typedef struct {
    PyObject_HEAD
    Worker* worker;
    File* files;
    Py_ssize_t count, room; /* files that there are, and that there is memory for */
    unsigned char* bytes;
    size_t used, size;
    int busy; /* whether a thread without the interpreter's lock is in it */
} Run;

static const unsigned char* data_of(const Run* run, const File* file) {
    return file->content.obj ? file->content.buf : run->bytes + file->offset;
}

/* Return whether there is memory for so many bytes of files. */
static int make_room(Run* run, size_t nbytes) {
    if (nbytes <= run->size) return 1;
    size_t size = nbytes < 2 * run->size ? 2 * run->size : nbytes;
    unsigned char* bytes = realloc(run->bytes, size);
    if (!bytes) return 0;
    run->bytes = bytes, run->size = size;
    return 1;
}

/* Read the rest of a regular file that is to have `size` bytes; return whether it had. */
static int read_whole(Run* run, File* file, int descriptor, size_t size) {
    size_t got = 0;
    while (got <= size) { /* one byte more, to see whether it has grown */
        ssize_t count = read(descriptor, run->bytes + run->used + got, size + 1 - got);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return 0;
        got += (size_t)count;
        if (count == 0 || got == size) break; /* a file of this size a moment ago: its end is not asked for */
    }
    if (got != size) return 0;
    file->offset = run->used, file->nbytes = size;
    run->used += size;
    return 1;
}

/* Read a file, unless it is none, or empty, or larger than a run may be. Return 0 if it has to wait until the files before it are done. */
static int read_path(Run* run, File* file) {
    struct stat state;
    int enough = 1, descriptor = open(PyBytes_AS_STRING(file->path), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0) return 1;
    if (fstat(descriptor, &state) == 0 && S_ISREG(state.st_mode) && state.st_size > 0 && state.st_size < MOST_BYTES) {
        size_t size = (size_t)state.st_size;
        enough = run->used + size < MOST_BYTES;
        if (enough && make_room(run, run->used + size + 1)) read_whole(run, file, descriptor, size);
    }
    close(descriptor);
    return enough;
}

/* Read files and their headers; return how many, from the first on, and in `plain` how many of them are JPEGs for us. */
static Py_ssize_t read_files(Run* run, int64_t max_pixels, Py_ssize_t* plain) {
    *plain = 0;
    for (Py_ssize_t i = 0; i < run->count; i++) {
        File* file = run->files + i;
        if (file->path && !read_path(run, file)) return i;
        int is_plain = file->nbytes && read_size(data_of(run, file), file->nbytes, &file->height, &file->width);
        if (!is_plain || (int64_t)file->height * file->width > max_pixels) file->height = file->width = 0;
        *plain += file->height > 0;
    }
    return run->count;
}

static void forget_files(Run* run) {
    for (Py_ssize_t i = 0; i < run->count; i++) {
        Py_CLEAR(run->files[i].path);
        PyBuffer_Release(&run->files[i].content);
    }
    run->count = 0;
    run->used = 0;
    if (run->size > KEPT_BYTES) {
        free(run->bytes);
        run->bytes = NULL, run->size = 0;
    }
}

/* Note what is to be read; return 0 with an exception if that is of no type that can be. */
static int take_sources(Run* run, PyObject* sources) {
    Py_ssize_t count = PySequence_Fast_GET_SIZE(sources);
    if (count > run->room) {
        File* files = PyMem_RawRealloc(run->files, (size_t)count * sizeof *files);
        if (!files) return PyErr_NoMemory() != NULL;
        run->files = files, run->room = count;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject* source = PySequence_Fast_GET_ITEM(sources, i);
        File* file = run->files + i;
        *file = (File){0};
        run->count = i + 1;
        if (PyUnicode_Check(source)) {
            file->path = PyUnicode_EncodeFSDefault(source);
            if (!file->path) PyErr_Clear();
            if (file->path && strlen(PyBytes_AS_STRING(file->path)) != (size_t)PyBytes_GET_SIZE(file->path)) Py_CLEAR(file->path);
        } else if (PyObject_CheckBuffer(source)) {
            if (!PyObject_GetBuffer(source, &file->content, PyBUF_SIMPLE)) {
                file->nbytes = (size_t)file->content.len;
            } else { /* it does not lie in one piece; of what was noted down until that was found, nothing may be left */
                file->content = (Py_buffer){0};
                PyErr_Clear();
            }
        } else if (source != Py_None) {
            PyErr_Format(PyExc_TypeError, "file %zd is of type %s; expected bytes, a path as str, or None", i, Py_TYPE(source)->tp_name);
            return 0;
        }
    }
    return 1;
}

/* Get a buffer of `rows` times `columns` elements (0: of one axis) of this format, else set an exception. */
static int take_table(PyObject* object, Py_buffer* table, const char* name, const char* formats, Py_ssize_t rows, Py_ssize_t columns,
                      int flags) {
    if (PyObject_GetBuffer(object, table, flags | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) return 0;
    int shaped = table->ndim == (columns ? 2 : 1) && table->shape[0] == rows && (!columns || table->shape[1] == columns);
    if (shaped && strlen(table->format) == 1 && strchr(formats, table->format[0])) return 1;
    PyErr_Format(PyExc_ValueError, "%s: expected %zd rows of %zd, of format %s", name, rows, columns ? columns : 1, formats);
    PyBuffer_Release(table);
    return 0;
}

static const char LONGS[] = {sizeof(long) == sizeof(int64_t) ? 'l' : 'q', 'q', 0}; /* formats of int64 */

static int is_idle(Run* run) {
    if (!run->busy) return 1;
    PyErr_SetString(PyExc_RuntimeError, "another thread is in this run");
    return 0;
}

static PyObject* run_read(Run* run, PyObject* args) {
    PyObject *given, *target;
    long long max_pixels;
    if (!PyArg_ParseTuple(args, "OOL:read", &given, &target, &max_pixels) || !is_idle(run)) return NULL;
    PyObject* sources = PySequence_Fast(given, "expected a sequence of files");
    if (!sources) return NULL;
    Py_buffer sizes;
    if (!take_table(target, &sizes, "sizes", LONGS, PySequence_Fast_GET_SIZE(sources), 2, PyBUF_WRITABLE)) {
        Py_DECREF(sources);
        return NULL;
    }
    forget_files(run);
    PyObject* result = NULL;
    if (take_sources(run, sources)) {
        Py_ssize_t count, plain;
        run->busy = 1;
        Py_BEGIN_ALLOW_THREADS;
        count = read_files(run, max_pixels, &plain);
        Py_END_ALLOW_THREADS;
        run->busy = 0;
        int64_t* size = sizes.buf;
        for (Py_ssize_t i = 0; i < run->count; i++) *size++ = run->files[i].height, *size++ = run->files[i].width;
        result = Py_BuildValue("(nn)", count, plain);
    } else {
        forget_files(run);
    }
    PyBuffer_Release(&sizes);
    Py_DECREF(sources);
    return result;
}

static PyObject* run_data(Run* run, PyObject* args) {
    Py_ssize_t place;
    if (!PyArg_ParseTuple(args, "n:data", &place) || !is_idle(run)) return NULL;
    if (place < 0 || place >= run->count) return PyErr_Format(PyExc_IndexError, "file %zd of %zd", place, run->count);
    const File* file = run->files + place;
    if (!file->nbytes) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char*)data_of(run, file), (Py_ssize_t)file->nbytes);
}

/* Get a buffer of all rows, else set an exception. */
static int take_batch(PyObject* object, Py_ssize_t count, Py_buffer* out) {
    if (PyObject_GetBuffer(object, out, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) return 0;
    int valid = out->ndim == 4 && strcmp(out->format, "B") == 0 && out->shape[0] == count && out->shape[3] == 3;
    for (int axis = 1; valid && axis < 3; axis++) valid = out->shape[axis] >= 1 && out->shape[axis] <= JPEG_MAX_DIMENSION;
    if (valid) return 1;
    PyErr_Format(PyExc_ValueError, "out: expected uint8 (%zd, H, W, 3) with sides from 1 to %d", count, (int)JPEG_MAX_DIMENSION);
    PyBuffer_Release(out);
    return 0;
}

/* What a run is decoded into: one buffer of all rows, or one for each. */
typedef struct {
    Py_buffer* buffers;
    Py_ssize_t count; /* of the buffers */
    int together;
} OutRows;

static void release_rows(OutRows* rows) {
    while (rows->count > 0) PyBuffer_Release(rows->buffers + --rows->count);
    PyMem_Free(rows->buffers);
}

/* Get what is to be decoded into: an array of all rows, or a tuple with an array for each; return 0 with an exception if it is neither. */
static int take_rows(PyObject* object, Py_ssize_t count, OutRows* rows) {
    int is_tuple = PyTuple_Check(object);
    *rows = (OutRows){.together = !is_tuple};
    if (is_tuple && PyTuple_GET_SIZE(object) != count)
        return PyErr_Format(PyExc_ValueError, "out: %zd arrays, but %zd boxes", PyTuple_GET_SIZE(object), count) != NULL;
    rows->buffers = PyMem_New(Py_buffer, is_tuple ? count + 1 : 1);
    if (!rows->buffers) return PyErr_NoMemory() != NULL;
    Request unused;
    if (!is_tuple) return rows->count = take_batch(object, count, rows->buffers);
    while (rows->count < count && take_out(PyTuple_GET_ITEM(object, rows->count), rows->buffers + rows->count, &unused)) rows->count++;
    return rows->count == count;
}

static void take_row(const OutRows* rows, Py_ssize_t row, Request* request) {
    const Py_buffer* out = rows->buffers + (rows->together ? 0 : row);
    const Py_ssize_t* shape = out->shape + (rows->together ? 1 : 0);
    request->height = (int)shape[0], request->width = (int)shape[1];
    request->out = (unsigned char*)out->buf + (rows->together ? (size_t)(row * shape[0] * shape[1] * 3) : 0);
}

/* Return by how much libjpeg can shrink the image so that the box is still at least as large as the output. */
static int reduction_of(const Request* request) {
    int down = request->rows / request->height, across = request->columns / request->width, times = down < across ? down : across;
    return times >= 8 ? 8 : times >= 4 ? 4 : times >= 2 ? 2 : 1;
}

/* Decode the files that are wanted, and mark those of them that could not be; return how many these are. */
static Py_ssize_t decode_files(Run* run, const Py_buffer* boxes, const Py_buffer* flipped, const Py_buffer* wanted, const OutRows* rows,
                               int antialias) {
    const int64_t* box = boxes->buf;
    Py_ssize_t failed = 0;
    for (Py_ssize_t i = 0; i < boxes->shape[0]; i++, box += 4) {
        File* file = run->files + i;
        file->failed = 0;
        if (!((const unsigned char*)wanted->buf)[i]) continue;
        Request request = {.data = data_of(run, file), .nbytes = file->nbytes, .image_height = file->height, .image_width = file->width};
        int fits = file->height > 0;
        for (int n = 0; n < 4; n++) fits &= box[n] >= 0 && box[n] <= JPEG_MAX_DIMENSION;
        if (fits) {
            request.top = (int)box[0], request.left = (int)box[1], request.rows = (int)box[2], request.columns = (int)box[3];
            take_row(rows, i, &request);
            request.flipped = ((const unsigned char*)flipped->buf)[i], request.antialias = antialias;
            request.reduction = reduction_of(&request);
            fits = is_within(&request);
        }
        file->failed = !fits || decode(run->worker, &request) != 0;
        failed += file->failed;
    }
    return failed;
}

/* Return the places of so many files that failed. */
static PyObject* places_of(const Run* run, Py_ssize_t failed) {
    PyObject* places = PyList_New(failed);
    for (Py_ssize_t i = 0, at = 0; places && at < failed; i++) {
        if (!run->files[i].failed) continue;
        PyObject* place = PyLong_FromSsize_t(i);
        if (!place) Py_CLEAR(places);
        if (place) PyList_SET_ITEM(places, at++, place);
    }
    return places;
}

static void sleep_for(int64_t microseconds) {
    struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
    while (nanosleep(&left, &left) && errno == EINTR) continue;
}

static PyObject* run_decode(Run* run, PyObject* args) {
    PyObject* given[4];
    Py_buffer tables[3]; /* boxes, flipped and wanted */
    OutRows rows = {0};
    int antialias, simulated = 0, taken = 0;
    if (!PyArg_ParseTuple(args, "OOOOp|i:decode", given, given + 1, given + 2, given + 3, &antialias, &simulated) || !is_idle(run)) return NULL;
    Py_ssize_t count = PyObject_Length(given[0]), failed = 0;
    if (count < 0) return NULL;
    if (count > run->count) return PyErr_Format(PyExc_ValueError, "boxes: %zd, but %zd files were read", count, run->count);
    taken += take_table(given[0], tables, "boxes", LONGS, count, 4, 0);
    if (taken == 1) taken += take_table(given[1], tables + 1, "flipped", "?", count, 0, 0);
    if (taken == 2) taken += take_table(given[2], tables + 2, "wanted", "?", count, 0, 0);
    int valid = taken == 3 && take_rows(given[3], count, &rows);
    if (valid) {
        run->busy = 1;
        Py_BEGIN_ALLOW_THREADS;
        if (simulated > 0)
            sleep_for((int64_t)count * simulated);
        else
            failed = decode_files(run, tables, tables + 1, tables + 2, &rows, antialias);
        Py_END_ALLOW_THREADS;
        run->busy = 0;
    }
    while (taken--) PyBuffer_Release(tables + taken);
    release_rows(&rows);
    return valid ? places_of(run, failed) : NULL;
}

static PyObject* run_forget(Run* run, PyObject* none) {
    (void)none;
    if (!is_idle(run)) return NULL;
    forget_files(run);
    Py_RETURN_NONE;
}

static PyObject* run_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
    if (!PyArg_ParseTuple(args, ":Run") || (keywords && PyDict_GET_SIZE(keywords))) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "Run takes no arguments");
        return NULL;
    }
    Run* run = (Run*)type->tp_alloc(type, 0);
    if (run && !(run->worker = calloc(1, sizeof *run->worker))) {
        Py_DECREF(run);
        return PyErr_NoMemory();
    }
    return (PyObject*)run;
}

static void run_dealloc(Run* run) {
    PyTypeObject* type = Py_TYPE(run);
    forget_files(run);
    free(run->bytes);
    PyMem_RawFree(run->files);
    if (run->worker) free_worker(run->worker);
    type->tp_free(run);
    Py_DECREF(type);
}

static PyMethodDef run_methods[] = {
    {"read", (PyCFunction)run_read, METH_VARARGS, "read(files, sizes, max_pixels, /)\n--\n\nRead files and the sizes of their images."},
    {"decode", (PyCFunction)run_decode, METH_VARARGS,
     "decode(boxes, flipped, wanted, out, antialias, /)\n--\n\nDecode a box of each file that is wanted into its row of out, an array of all or a tuple of them."},
    {"data", (PyCFunction)run_data, METH_VARARGS, "data(place, /)\n--\n\nReturn the bytes of a file, or None if it was not read."},
    {"forget", (PyCFunction)run_forget, METH_NOARGS, "forget()\n--\n\nHold on to the files no more."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot run_slots[] = {
    {Py_tp_new, run_new}, {Py_tp_dealloc, run_dealloc}, {Py_tp_methods, run_methods}, {Py_tp_doc, "Files that are read and decoded together."}, {0, NULL}};

static PyType_Spec run_spec = {"highway.images._jpeg.Run", sizeof(Run), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, run_slots};

#define TEXT_OF(token) #token
#define TEXT(macro) TEXT_OF(macro)

static void free_module(void* module) {
    State* state = PyModule_GetState(module);
    while (state && state->idle) {
        Worker* worker = state->idle;
        state->idle = worker->next;
        free_worker(worker);
    }
}

static PyMethodDef methods[] = {
    {"decode_crop", decode_crop, METH_VARARGS,
     "decode_crop(data, size, box, reduction, out, flipped, antialias, /)\n--\n\nDecode a box of a JPEG and scale it into out."},
    {NULL, NULL, 0, NULL},
};

/* Make the first worker, which shows whether the libjpeg that was found is the one that the headers were of. */
static int prepare(PyObject* module) {
    State* state = PyModule_GetState(module);
    Worker* worker = state->idle = calloc(1, sizeof *worker);
    if (!worker) {
        PyErr_NoMemory();
        return -1;
    }
    int result = setjmp(worker->escape);
    if (!result) open_jpeg(worker);
    jpeg_destroy_decompress(&worker->jpeg);
    if (result) PyErr_Format(PyExc_ImportError, "highway.images._jpeg was built for another libjpeg: %s; install highway again", worker->message);
    if (result) return -1;
    PyObject* type = PyType_FromModuleAndSpec(module, &run_spec, NULL);
    if (!type) return -1;
    result = PyModule_AddObjectRef(module, "Run", type);
    Py_DECREF(type);
    if (!result) result = PyModule_AddStringConstant(module, "LIBJPEG", "libjpeg-turbo " TEXT(LIBJPEG_TURBO_VERSION));
    if (!result) result = PyModule_AddIntConstant(module, "API", 4);  /* images/decode.py expects it: count up with every change of a call */
    return result;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "highway.images._jpeg",
    .m_doc = "Boxes of JPEGs, decoded and scaled into the rows of batches by libjpeg-turbo.",
    .m_size = sizeof(State),
    .m_methods = methods,
    .m_slots = slots,
    .m_free = free_module,
};

PyMODINIT_FUNC PyInit__jpeg(void) { return PyModuleDef_Init(&definition); }

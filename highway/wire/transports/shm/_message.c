/* What each message over a same-host link costs, in C: its frames into a slot, its packet, and views of it. message.py has the same in Python.
 *
 * Nothing here decides anything: which slot, who may hold what, and what a peer may say is decided in Python. All of it holds the
 * interpreter's lock, which it lets go of only while it copies a frame of more than BRIEF bytes. No call blocks.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ALIGNMENT 64
#define BRIEF (1 << 17) /* bytes that are copied without letting go of the lock: to get it back may take longer than to copy them */
#define LARGEST (1 << 16) /* bytes of a packet */
#define MOST_DESCRIPTORS 253 /* as many as the system passes on at once */

typedef struct {
    PyTypeObject* loan;
} State;

/* Where the next frame begins: end, rounded up. No frame is so long that this could overflow: each lies in memory. */
static Py_ssize_t aligned(Py_ssize_t end) { return (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static PyObject* measured(PyObject* module, PyObject* given) {
    PyObject* frames = PySequence_Tuple(given);
    if (!frames) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(frames), end = 0;
    PyObject* lengths = PyTuple_New(count);
    for (Py_ssize_t i = 0; lengths && i < count; i++) {
        Py_buffer view;
        PyObject* length = NULL;
        if (!PyObject_GetBuffer(PyTuple_GET_ITEM(frames, i), &view, PyBUF_SIMPLE)) {
            end = aligned(end) + view.len;
            length = PyLong_FromSsize_t(view.len);
            PyBuffer_Release(&view);
        }
        if (length) PyTuple_SET_ITEM(lengths, i, length);
        else Py_CLEAR(lengths);
    }
    Py_DECREF(frames);
    return lengths ? Py_BuildValue("(Nn)", lengths, aligned(end)) : NULL;
}

/* Copy a frame to a place in memory; it must have the length that was measured. */
static int copy(PyObject* frame, Py_ssize_t length, Py_buffer* memory, Py_ssize_t place) {
    Py_buffer view;
    if (PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)) return -1;
    int fits = view.len == length && place <= memory->len && length <= memory->len - place;
    if (!fits) PyErr_Format(PyExc_ValueError, "a frame of %zd bytes; expected %zd, at byte %zd of %zd", view.len, length, place, memory->len);
    else if (length <= BRIEF) memcpy((char*)memory->buf + place, view.buf, length);
    else {
        Py_BEGIN_ALLOW_THREADS
        memcpy((char*)memory->buf + place, view.buf, length);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return fits ? 0 : -1;
}

static PyObject* fill(PyObject* module, PyObject* arguments) {
    PyObject *given, *lengths, *frames;
    Py_buffer memory;
    if (!PyArg_ParseTuple(arguments, "w*OO!", &memory, &given, &PyTuple_Type, &lengths)) return NULL;
    int failed = !(frames = PySequence_Tuple(given));
    if (!failed && PyTuple_GET_SIZE(frames) != PyTuple_GET_SIZE(lengths)) {
        PyErr_SetString(PyExc_ValueError, "as many lengths as frames are expected");
        failed = 1;
    }
    Py_ssize_t end = 0;
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(frames); i++) {
        Py_ssize_t length = PyLong_AsSsize_t(PyTuple_GET_ITEM(lengths, i)), place = aligned(end);
        failed = (length < 0 && PyErr_Occurred()) || copy(PyTuple_GET_ITEM(frames, i), length, &memory, place);
        end = place + length;
    }
    Py_XDECREF(frames);
    PyBuffer_Release(&memory);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static PyObject* post(PyObject* module, PyObject* arguments) {
    int socket;
    Py_buffer packet;
    if (!PyArg_ParseTuple(arguments, "iy*", &socket, &packet)) return NULL;
    ssize_t sent;
    do sent = send(socket, packet.buf, packet.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    PyBuffer_Release(&packet);
    if (sent < 0) return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

/* Add the descriptors of a packet to a list; those that cannot be added are closed. */
static int collect(PyObject* list, struct msghdr* message) {
    int failed = 0;
    for (struct cmsghdr* part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        for (size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
            PyObject* number = failed ? NULL : PyLong_FromLong(descriptor);
            if (!number || PyList_Append(list, number)) {
                close(descriptor);
                failed = 1;
            }
            Py_XDECREF(number);
        }
    }
    return failed ? -1 : 0;
}

static PyObject* packet(PyObject* module, PyObject* number) {
    char bytes[LARGEST];
    union {
        struct cmsghdr aligns;
        char bytes[CMSG_SPACE(MOST_DESCRIPTORS * sizeof(int))];
    } control;
    struct iovec place = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &place, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    long socket = PyLong_AsLong(number);
    if (socket == -1 && PyErr_Occurred()) return NULL;
    ssize_t length;
    do length = recvmsg((int)socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (length < 0 && errno == EINTR);
    if (length < 0) return PyErr_SetFromErrno(PyExc_OSError);
    PyObject* descriptors = PyList_New(0);
    if (descriptors && collect(descriptors, &message)) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(descriptors); i++) close((int)PyLong_AsLong(PyList_GET_ITEM(descriptors, i)));
        Py_CLEAR(descriptors);
    }
    if (!descriptors) return NULL;
    return Py_BuildValue("(y#NN)", bytes, (Py_ssize_t)length, descriptors, PyBool_FromLong(message.msg_flags & MSG_CTRUNC));
}

/* A message that is lent: views hold on to it, and it calls back when the last of them is gone. */
typedef struct {
    PyObject_HEAD
    Py_buffer memory;
    PyObject *give_back, *number;
    Py_ssize_t start, length; /* of the frame that a view is just being made of */
} Loan;

static int loan_buffer(PyObject* self, Py_buffer* view, int flags) {
    Loan* loan = (Loan*)self;
    return PyBuffer_FillInfo(view, self, (char*)loan->memory.buf + loan->start, loan->length, loan->memory.readonly, flags);
}

static void loan_dealloc(PyObject* self) {
    Loan* loan = (Loan*)self;
    PyObject *type, *value, *trace, *give_back = loan->give_back, *number = loan->number;
    PyTypeObject* own = Py_TYPE(self);
    if (loan->memory.obj) PyBuffer_Release(&loan->memory);
    own->tp_free(self);
    Py_DECREF(own);
    PyErr_Fetch(&type, &value, &trace); /* it may be while an exception is on its way that the last view goes */
    PyObject* answer = PyObject_CallOneArg(give_back, number);
    if (!answer) PyErr_WriteUnraisable(give_back);
    Py_XDECREF(answer);
    Py_DECREF(give_back);
    Py_DECREF(number);
    PyErr_Restore(type, value, trace);
}

/* Return views of the frames, or NULL; without an exception if they do not fit. */
static PyObject* views(Loan* loan, PyObject* lengths) {
    Py_ssize_t end = 0;
    PyObject* list = PyList_New(PyTuple_GET_SIZE(lengths));
    for (Py_ssize_t i = 0; list && i < PyTuple_GET_SIZE(lengths); i++) {
        Py_ssize_t length = PyLong_AsSsize_t(PyTuple_GET_ITEM(lengths, i)), place = aligned(end);
        PyObject* view = NULL;
        Py_ssize_t room = loan->memory.len - place;
        if (length >= 0 && length <= room && aligned(length) <= room) {
            loan->start = place;
            loan->length = length;
            end = place + length;
            view = PyMemoryView_FromObject((PyObject*)loan);
        } else if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)) PyErr_Clear(); /* a length of 2**63 bytes and more fits nowhere */
        if (view) PyList_SET_ITEM(list, i, view);
        else Py_CLEAR(list);
    }
    return list;
}

static PyObject* lend(PyObject* module, PyObject* arguments) {
    PyObject *memory, *lengths, *give_back, *number;
    if (!PyArg_ParseTuple(arguments, "OO!OO", &memory, &PyTuple_Type, &lengths, &give_back, &number)) return NULL;
    Py_buffer buffer;
    if (PyObject_GetBuffer(memory, &buffer, PyBUF_SIMPLE)) return NULL;
    Loan* loan = PyObject_New(Loan, ((State*)PyModule_GetState(module))->loan);
    if (!loan) {
        PyBuffer_Release(&buffer);
        return NULL;
    }
    loan->memory = buffer;
    loan->give_back = Py_NewRef(give_back);
    loan->number = Py_NewRef(number);
    loan->start = loan->length = 0;
    PyObject* list = views(loan, lengths);
    Py_DECREF(loan);
    if (list || PyErr_Occurred()) return list;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"measured", measured, METH_O, "measured(frames, /)\n--\n\nReturn the lengths of frames, and the bytes that they take in a slot."},
    {"fill", fill, METH_VARARGS, "fill(memory, frames, lengths, /)\n--\n\nCopy frames into a slot."},
    {"post", post, METH_VARARGS, "post(socket, packet, /)\n--\n\nSend a packet."},
    {"packet", packet, METH_O, "packet(socket, /)\n--\n\nReturn the next packet, the descriptors that came with it, and whether some were lost."},
    {"lend", lend, METH_VARARGS,
     "lend(memory, lengths, give_back, number, /)\n--\n\nReturn the frames in a slot as views, or None if they do not fit."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot loan_slots[] = {{Py_tp_dealloc, loan_dealloc}, {Py_bf_getbuffer, loan_buffer}, {Py_tp_doc, "A message that is lent."}, {0, NULL}};

static PyType_Spec loan_spec = {
    "highway.wire.transports.shm._message.Loan", sizeof(Loan), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, loan_slots};

static int prepare(PyObject* module) {
    State* state = PyModule_GetState(module);
    state->loan = (PyTypeObject*)PyType_FromModuleAndSpec(module, &loan_spec, NULL);
    if (!state->loan) return -1;
    return PyModule_AddIntConstant(module, "API", 1); /* message.py expects it: count up with every change of a call */
}

static int traverse(PyObject* module, visitproc visit, void* arg) {
    Py_VISIT(((State*)PyModule_GetState(module))->loan);
    return 0;
}

static int clear(PyObject* module) {
    Py_CLEAR(((State*)PyModule_GetState(module))->loan);
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "highway.wire.transports.shm._message",
    .m_doc = "What each message over a same-host link costs.",
    .m_size = sizeof(State),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__message(void) { return PyModuleDef_Init(&definition); }

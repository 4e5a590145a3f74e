package zktest

import (
	"slices"

	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// inMulti turns a create into the operation that the server takes it for when it
// is part of a multi: the create mode decides, and answers are those of a plain
// create. It reports false for a mode that does not go with the request.
func inMulti(r *wire.Request) bool {
	ttl := r.Flags == modeTTL || r.Flags == modeSequentialTTL
	switch r.Op {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL:
	default:
		return true
	}
	if ttl {
		return r.Op == OpCreateTTL
	}
	r.Op, r.TTL = OpCreate, -1
	if r.Flags == modeContainer {
		r.Op = OpCreateContainer
	}
	return true
}

// multi applies all of its operations or none. It returns the code of the
// operation that failed; the header of the answer says ok all the same.
func (e *ensemble) multi(c *conn, r *wire.Request, t *txn) Code {
	undos := make([]undo, 0, len(r.Ops))
	t.changes = make([]change, 0, len(r.Ops)) // answers keep pointers into it
	for i := range r.Ops {
		op := &r.Ops[i]
		code, ok := codeOK, inMulti(op)
		if ok {
			code = e.prepare(c, op, t)
		}
		if !ok || code != codeOK {
			for _, u := range slices.Backward(undos) {
				u()
			}
			t.changes = nil
			e.body.B = e.body.B[:0]
			if !ok {
				e.committed(t)
				return codeMarshalling
			}
			for k := range r.Ops {
				switch {
				case k < i:
					e.multiError(codeOK)
				case k == i:
					e.multiError(code)
				default:
					e.multiError(codeInconsistency)
				}
			}
			e.multiEnd()
			e.committed(t)
			return code
		}
		ch := &t.changes[len(t.changes)-1]
		n, u := e.tree.apply(ch, true)
		if u != nil {
			undos = append(undos, u)
		}
		if op.Op == OpCreateContainer || op.Op == OpCreateTTL {
			e.multiHeader(OpCreate2, codeOK) // every answer with a Stat goes by this name
		} else {
			e.multiHeader(op.Op, codeOK)
		}
		e.answer(op.Op, ch, n)
	}
	e.multiEnd()
	e.committed(t)
	return codeOK
}

// multiRead answers each read on its own: an error of one does not touch the others.
// It reports false for an answer that is too large to be sent: a small packet can
// ask for the same large node many times.
func (e *ensemble) multiRead(c *conn, t *tree, r *wire.Request) bool {
	for i := range r.Ops {
		if len(e.body.B) > maxPending {
			return false
		}
		op := &r.Ops[i]
		op.Watch = false // the server does not look at the flag here
		at := len(e.body.B)
		e.multiHeader(op.Op, 0)
		if code := e.read(c, t, op); code != codeOK {
			e.body.B = e.body.B[:at]
			e.multiError(code)
		}
	}
	e.multiEnd()
	return true
}

func (e *ensemble) multiHeader(op Op, code Code) {
	e.body.Int(int32(op))
	e.body.Bool(false)
	e.body.Int(int32(code))
}

func (e *ensemble) multiError(code Code) {
	e.multiHeader(wire.Error, code)
	e.body.Int(int32(code))
}

func (e *ensemble) multiEnd() {
	e.body.Int(-1)
	e.body.Bool(true)
	e.body.Int(-1)
}

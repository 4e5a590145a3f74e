package zktest

import (
	"slices"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// normalizeMultiOp changes a create to the operation that a real server uses for it in a multi: the
// create mode determines the operation, and the reply has the format of a plain create. It returns
// false if the mode is not valid for the request.
func normalizeMultiOp(r *wire.Request) bool {
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

// applyMulti applies all operations, or none. It returns the code of the operation that failed; the
// header of the reply indicates success in any case.
func (e *ensemble) applyMulti(c *conn, r *wire.Request, t *txn) Code {
	undos := make([]undo, 0, len(r.Ops))
	t.changes = make([]change, 0, len(r.Ops)) // allocate all elements, because the loop keeps pointers to them
	for i := range r.Ops {
		op := &r.Ops[i]
		code, ok := codeOK, normalizeMultiOp(op)
		if ok {
			code = e.prepareChange(c, op, t)
		}
		if !ok || code != codeOK {
			for _, u := range slices.Backward(undos) {
				u()
			}
			t.changes = nil
			e.body.B = e.body.B[:0]
			if !ok {
				e.publishTxn(t)
				return codeMarshalling
			}
			for k := range r.Ops {
				switch {
				case k < i:
					e.appendMultiError(codeOK)
				case k == i:
					e.appendMultiError(code)
				default:
					e.appendMultiError(codeInconsistency)
				}
			}
			e.appendMultiEnd()
			e.publishTxn(t)
			return code
		}
		ch := &t.changes[len(t.changes)-1]
		n, u := e.tree.apply(ch, true)
		if u != nil {
			undos = append(undos, u)
		}
		if op.Op == OpCreateContainer || op.Op == OpCreateTTL {
			// A real server uses the operation create2 for each reply with a Stat.
			e.appendMultiHeader(OpCreate2, codeOK)
		} else {
			e.appendMultiHeader(op.Op, codeOK)
		}
		e.appendReplyBody(op.Op, ch, n)
	}
	e.appendMultiEnd()
	e.publishTxn(t)
	return codeOK
}

// applyMultiRead answers each read separately: an error of one read does not affect the others. It
// returns false if the reply is too large: a small packet can request the same large znode many
// times.
func (e *ensemble) applyMultiRead(c *conn, t *tree, r *wire.Request) bool {
	for i := range r.Ops {
		if len(e.body.B) > maxPending {
			return false
		}
		op := &r.Ops[i]
		op.Watch = false // ignore the flag, as a real server does in a multiRead
		at := len(e.body.B)
		e.appendMultiHeader(op.Op, 0)
		if code := e.readNode(c, t, op); code != codeOK {
			e.body.B = e.body.B[:at]
			e.appendMultiError(code)
		}
	}
	e.appendMultiEnd()
	return true
}

func (e *ensemble) appendMultiHeader(op Op, code Code) {
	e.body.Int(int32(op))
	e.body.Bool(false)
	e.body.Int(int32(code))
}

func (e *ensemble) appendMultiError(code Code) {
	e.appendMultiHeader(wire.Error, code)
	e.body.Int(int32(code))
}

func (e *ensemble) appendMultiEnd() {
	e.body.Int(-1)
	e.body.Bool(true)
	e.body.Int(-1)
}

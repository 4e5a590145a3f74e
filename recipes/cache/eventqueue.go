package cache

// eventQueue contains the events that the reader has not received yet: for each path, the
// difference between the state that was reported last and the current state.
//
// Events keep their order. For each path there are at most two events: the deletion, and after it the current
// state. So the number of events is at most the number of znodes that the reader knows plus the number of znodes in
// the tree. If a znode was created and deleted before the reader has received an event, both events are removed.
type eventQueue struct {
	head, tail *queuedEvent
	paths      map[string]pathEvents
	connection *queuedEvent // the pending Stale or Fresh event, or nil
}

type queuedEvent struct {
	prev, next *queuedEvent
	kind       Kind
	node, old  *Znode
}

// pathEvents are the pending events of one path, at most one of each kind.
type pathEvents struct {
	deletion *queuedEvent // an event of kind Deleted, or nil
	state    *queuedEvent // an event of kind Created or Changed, or nil
}

func newEventQueue() eventQueue { return eventQueue{paths: map[string]pathEvents{}} }

func (q *eventQueue) isEmpty() bool { return q.head == nil }

func (q *eventQueue) addCreated(z *Znode) {
	p := q.paths[z.Path]
	p.state = q.add(Created, nil, z)
	q.paths[z.Path] = p
}

func (q *eventQueue) addChanged(old, z *Znode) {
	p := q.paths[z.Path]
	if p.state != nil {
		p.state.node = z
		return
	}
	p.state = q.add(Changed, old, z)
	q.paths[z.Path] = p
}

// replaceState updates the Stat in the pending event of a znode, if there is one.
func (q *eventQueue) replaceState(z *Znode) {
	if p := q.paths[z.Path]; p.state != nil {
		p.state.node = z
	}
}

func (q *eventQueue) addDeleted(old *Znode) {
	p := q.paths[old.Path]
	isKnown := true // whether the reader has received an event of the znode; otherwise it needs no Deleted event
	if p.state != nil {
		q.remove(p.state)
		if p.state.kind == Created {
			isKnown = false
		} else {
			old = p.state.old
		}
		p.state = nil
	}
	if isKnown {
		p.deletion = q.add(Deleted, old, nil)
	}
	q.setPath(old.Path, p)
}

// addConnection adds a Stale or a Fresh event, which alternate. If the previous Stale or Fresh event is still
// pending, addConnection removes it and adds nothing, because the reader already knows the current state.
func (q *eventQueue) addConnection(kind Kind) {
	if q.connection != nil {
		q.remove(q.connection)
		q.connection = nil
		return
	}
	q.connection = q.add(kind, nil, nil)
}

func (q *eventQueue) add(kind Kind, old, z *Znode) *queuedEvent {
	e := &queuedEvent{prev: q.tail, kind: kind, node: z, old: old}
	if q.tail != nil {
		q.tail.next = e
	} else {
		q.head = e
	}
	q.tail = e
	return e
}

func (q *eventQueue) remove(e *queuedEvent) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		q.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		q.tail = e.prev
	}
}

func (q *eventQueue) setPath(path string, p pathEvents) {
	if p.deletion == nil && p.state == nil {
		delete(q.paths, path)
	} else {
		q.paths[path] = p
	}
}

// firstEvent returns the first pending event. The queue must not be empty.
func (q *eventQueue) firstEvent() Event {
	e := Event{Kind: q.head.kind}
	if z := q.head.old; z != nil {
		e.Path, e.Old = z.Path, *z
	}
	if z := q.head.node; z != nil {
		e.Path, e.Node = z.Path, *z
	}
	return e
}

// removeFirst removes the event that firstEvent returns.
func (q *eventQueue) removeFirst() {
	e := q.head
	q.remove(e)
	switch e.kind {
	case Stale, Fresh:
		q.connection = nil
	case Deleted:
		p := q.paths[e.old.Path]
		p.deletion = nil
		q.setPath(e.old.Path, p)
	default:
		p := q.paths[e.node.Path]
		p.state = nil
		q.setPath(e.node.Path, p)
	}
}

package mongodb_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

var ok = bson.E{Key: "ok", Value: 1}

// execute executes a command and returns the reply.
func (s *fakeServer) execute(command bson.D) bson.D {
	name := command[0].Key
	coll, _ := command[0].Value.(string)
	if name == "getMore" {
		return s.interceptReply(name, command, s.nextBatch(command))
	}
	s.mu.Lock()
	s.counts[name]++
	var reply bson.D
	switch name {
	case "findAndModify", "update", "insert", "delete", "drop":
		reply = s.rejection
		if s.secondary {
			reply = notPrimary()
		}
		if reply != nil {
			s.mu.Unlock()
			return reply
		}
	}
	switch name {
	case "hello", "isMaster", "ismaster":
		hosts, primary := bson.A{s.addr}, s.addr
		if s.other != nil {
			hosts = append(hosts, s.other.addr)
		}
		if s.secondary {
			primary = s.other.addr
		}
		reply = bson.D{
			{Key: "helloOk", Value: true},
			{Key: "isWritablePrimary", Value: !s.secondary},
			{Key: "ismaster", Value: !s.secondary},
			{Key: "secondary", Value: s.secondary},
			{Key: "setName", Value: "rs"},
			{Key: "setVersion", Value: 1},
			{Key: "hosts", Value: hosts},
			{Key: "me", Value: s.addr},
			{Key: "primary", Value: primary},
			{Key: "maxBsonObjectSize", Value: 16 << 20},
			{Key: "maxMessageSizeBytes", Value: 48000000},
			{Key: "maxWriteBatchSize", Value: 100000},
			{Key: "logicalSessionTimeoutMinutes", Value: 30},
			{Key: "minWireVersion", Value: 0},
			{Key: "maxWireVersion", Value: 21},
			{Key: "readOnly", Value: false},
			ok,
		}
	case "ping", "endSessions", "killCursors":
		reply = bson.D{ok}
	case "listCollections":
		found := bson.A{}
		if want, _ := getValue(command, "filter.name").(string); s.docs[want] != nil {
			found = append(found, bson.D{{Key: "name", Value: want}, {Key: "type", Value: "collection"}, {Key: "options", Value: bson.D{}}})
		}
		reply = batch(0, "firstBatch", found)
	case "find":
		found := bson.A{}
		if i := s.index(coll, getDocument(command, "filter")); i >= 0 {
			found = append(found, s.docs[coll][i])
		}
		reply = batch(0, "firstBatch", found)
	case "findAndModify":
		reply = bson.D{{Key: "value", Value: nil}, ok}
		if i := s.index(coll, getDocument(command, "query")); i >= 0 {
			reply = bson.D{{Key: "value", Value: s.applyTo(coll, i, getDocument(command, "update"))}, ok}
		}
	case "update":
		reply = s.executeUpdate(coll, getValue(command, "updates").(bson.A)[0].(bson.D))
	case "insert":
		for _, d := range getValue(command, "documents").(bson.A) {
			s.docs[coll] = append(s.docs[coll], d.(bson.D))
			s.appendEvent(coll, "insert", getValue(d.(bson.D), "_id"), bson.E{Key: "fullDocument", Value: d})
		}
		reply = bson.D{{Key: "n", Value: 1}, ok}
	case "delete":
		reply = bson.D{{Key: "n", Value: 0}, ok}
		if i := s.index(coll, getDocument(getValue(command, "deletes").(bson.A)[0].(bson.D), "q")); i >= 0 {
			s.appendEvent(coll, "delete", getValue(s.docs[coll][i], "_id"))
			s.docs[coll] = slices.Delete(s.docs[coll], i, i+1)
			reply = bson.D{{Key: "n", Value: 1}, ok}
		}
	case "drop":
		delete(s.docs, coll)
		s.appendEvent(coll, "drop", nil)
		s.appendEvent(coll, "invalidate", nil)
		reply = bson.D{ok}
	case "aggregate":
		reply = s.openStream(coll, getValue(command, "pipeline").(bson.A))
	default:
		reply = failure(59, "the fake server does not support "+name)
	}
	s.mu.Unlock()
	return s.interceptReply(name, command, reply)
}

// notPrimary returns the reply of a server that is not the primary.
func notPrimary() bson.D { return failure(10107, "not primary") }

// failure returns the reply to a command that has failed.
func failure(code int, text string, labels ...string) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: text}, {Key: "errorLabels", Value: labels}}
}

// batch returns a batch of a cursor.
func batch(id int64, name string, docs bson.A) bson.D {
	return bson.D{{Key: "cursor", Value: bson.D{
		{Key: "id", Value: id}, {Key: "ns", Value: "test.c"}, {Key: name, Value: docs},
	}}, ok}
}

// index returns the index of the first document that matches, or -1. The caller must hold mu.
func (s *fakeServer) index(coll string, filter bson.D) int {
	return slices.IndexFunc(s.docs[coll], func(d bson.D) bool { return matches(d, filter) })
}

// applyTo applies an update to a document, and returns the result. The caller must hold mu.
func (s *fakeServer) applyTo(coll string, i int, change bson.D) bson.D {
	d := applyUpdate(s.docs[coll][i], change)
	s.docs[coll][i] = d
	s.appendEvent(coll, "update", getValue(d, "_id"))
	return d
}

// executeUpdate executes one statement of the command update. The caller must hold mu.
func (s *fakeServer) executeUpdate(coll string, u bson.D) bson.D {
	q, change := getDocument(u, "q"), getDocument(u, "u")
	upsert, _ := getValue(u, "upsert").(bool)
	id := bson.D{{Key: "_id", Value: getValue(q, "_id")}}
	switch i := s.index(coll, q); {
	case i >= 0:
		s.applyTo(coll, i, change)
		return bson.D{{Key: "n", Value: 1}, {Key: "nModified", Value: 1}, ok}
	case !upsert:
		return bson.D{{Key: "n", Value: 0}, {Key: "nModified", Value: 0}, ok}
	case s.index(coll, id) >= 0:
		return bson.D{{Key: "n", Value: 0}, {Key: "writeErrors", Value: bson.A{bson.D{
			{Key: "index", Value: 0}, {Key: "code", Value: 11000}, {Key: "errmsg", Value: "E11000 duplicate key error"},
		}}}, ok}
	}
	d := applyUpdate(q, change) // An upsert also inserts the fields of the filter.
	s.docs[coll] = append(s.docs[coll], d)
	s.appendEvent(coll, "insert", id[0].Value, bson.E{Key: "fullDocument", Value: d})
	return bson.D{{Key: "n", Value: 1}, {Key: "nModified", Value: 0}, {Key: "upserted", Value: bson.A{
		bson.D{{Key: "index", Value: 0}, {Key: "_id", Value: id[0].Value}},
	}}, ok}
}

// openStream opens a change stream. The caller must hold mu.
func (s *fakeServer) openStream(coll string, pipeline bson.A) bson.D {
	c := &fakeCursor{coll: coll, next: len(s.oplog), match: getDocument(pipeline[1].(bson.D), "$match")}
	for _, name := range []string{"resumeAfter", "startAfter"} {
		if at, ok := getValue(pipeline[0].(bson.D), "$changeStream."+name+"._data").(string); ok {
			c.next, _ = strconv.Atoi(at)
		}
	}
	if c.next > len(s.oplog) {
		return failure(286, "the resume point may no longer be in the oplog")
	}
	id := int64(len(s.cursors)+1)<<32 | time.Now().UnixNano()&0xffffffff
	s.cursors[id] = c
	reply := batch(id, "firstBatch", bson.A{})
	reply[0].Value = append(reply[0].Value.(bson.D), bson.E{Key: "postBatchResumeToken", Value: resumeToken(c.next)})
	return reply
}

// nextBatch executes getMore: it waits for events of a change stream.
func (s *fakeServer) nextBatch(command bson.D) bson.D {
	id := command[0].Value.(int64)
	limit := time.After(100 * time.Millisecond)
	for {
		s.mu.Lock()
		c, changed := s.cursors[id], s.changed
		if c == nil {
			s.mu.Unlock()
			return failure(43, "cursor id not found")
		}
		found, next := bson.A{}, id
		for ; c.next < len(s.oplog) && !c.ended; c.next++ {
			event := s.oplog[c.next]
			if getValue(event, "ns.coll") != c.coll {
				continue
			}
			c.ended = getValue(event, "operationType") == "invalidate"
			if getValue(event, "operationType") == "update" {
				// As with the option updateLookup, an update event contains the document as it is now.
				var now any
				if i := s.index(c.coll, getDocument(event, "documentKey")); i >= 0 {
					now = s.docs[c.coll][i]
				}
				event = append(slices.Clone(event), bson.E{Key: "fullDocument", Value: now})
			}
			if matches(event, c.match) {
				found = append(found, event)
			}
		}
		if c.ended {
			next = 0
		}
		at := c.next
		s.mu.Unlock()
		timeout := false
		if len(found) == 0 && next != 0 {
			select {
			case <-changed:
				continue
			case <-limit:
				timeout = true
			}
		}
		if len(found) > 0 || next == 0 || timeout {
			reply := batch(next, "nextBatch", found)
			reply[0].Value = append(reply[0].Value.(bson.D), bson.E{Key: "postBatchResumeToken", Value: resumeToken(at)})
			return reply
		}
	}
}

// getValue returns the value at a dotted path, or nil.
func getValue(d bson.D, path string) any {
	name, rest, more := strings.Cut(path, ".")
	for _, e := range d {
		if e.Key != name {
			continue
		}
		if sub, ok := e.Value.(bson.D); ok && more {
			return getValue(sub, rest)
		} else if more {
			return nil
		}
		return e.Value
	}
	return nil
}

// getDocument returns the document at a dotted path, or nil.
func getDocument(d bson.D, path string) bson.D { v, _ := getValue(d, path).(bson.D); return v }

// equal compares values by their encoding.
func equal(a, b any) bool {
	x, err1 := bson.Marshal(bson.D{{Key: "v", Value: a}})
	y, err2 := bson.Marshal(bson.D{{Key: "v", Value: b}})
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// matches reports whether a document matches a filter with equality, $or, $in and $exists.
func matches(d, filter bson.D) bool {
	for _, e := range filter {
		ok := false
		operator, _ := e.Value.(bson.D)
		switch {
		case e.Key == "$or":
			for _, f := range e.Value.(bson.A) {
				ok = ok || matches(d, f.(bson.D))
			}
		case len(operator) == 1 && operator[0].Key == "$in":
			ok = slices.ContainsFunc(operator[0].Value.(bson.A), func(v any) bool { return equal(v, getValue(d, e.Key)) })
		case len(operator) == 1 && operator[0].Key == "$exists":
			ok = (getValue(d, e.Key) != nil) == operator[0].Value.(bool)
		case strings.HasPrefix(e.Key, "$"), len(operator) > 0 && strings.HasPrefix(operator[0].Key, "$"):
			panic(fmt.Sprintf("the fake server does not support %v", e))
		default:
			ok = equal(getValue(d, e.Key), e.Value)
		}
		if !ok {
			return false
		}
	}
	return true
}

// applyUpdate returns d after $set and $currentDate.
func applyUpdate(d, update bson.D) bson.D {
	d = slices.Clone(d)
	set := func(key string, v any) {
		if i := slices.IndexFunc(d, func(e bson.E) bool { return e.Key == key }); i >= 0 {
			d[i].Value = v
		} else {
			d = append(d, bson.E{Key: key, Value: v})
		}
	}
	for _, e := range update {
		for _, f := range e.Value.(bson.D) {
			switch e.Key {
			case "$set":
				set(f.Key, f.Value)
			case "$currentDate":
				set(f.Key, bson.NewDateTimeFromTime(time.Now()))
			default:
				panic("the fake server does not support " + e.Key)
			}
		}
	}
	return d
}

// resumeToken returns the token of a position in the oplog.
func resumeToken(at int) bson.D { return bson.D{{Key: "_data", Value: strconv.Itoa(at)}} }

// appendEvent appends an event to the oplog. The caller must hold mu.
func (s *fakeServer) appendEvent(coll, kind string, key any, more ...bson.E) {
	event := bson.D{
		{Key: "_id", Value: resumeToken(len(s.oplog) + 1)},
		{Key: "operationType", Value: kind},
		{Key: "ns", Value: bson.D{{Key: "db", Value: "test"}, {Key: "coll", Value: coll}}},
	}
	if key != nil {
		event = append(event, bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: key}}})
	}
	s.oplog = append(s.oplog, append(event, more...))
	s.wake()
}

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

// answer carries out a command.
func (s *standin) answer(command bson.D) bson.D {
	name := command[0].Key
	coll, _ := command[0].Value.(string)
	if name == "getMore" {
		return s.intercepted(name, command, s.more(command))
	}
	s.mu.Lock()
	s.counts[name]++
	var answer bson.D
	switch name {
	case "hello", "isMaster", "ismaster":
		answer = bson.D{
			{Key: "helloOk", Value: true},
			{Key: "isWritablePrimary", Value: true},
			{Key: "ismaster", Value: true},
			{Key: "setName", Value: "rs"},
			{Key: "setVersion", Value: 1},
			{Key: "hosts", Value: bson.A{s.addr}},
			{Key: "me", Value: s.addr},
			{Key: "primary", Value: s.addr},
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
		answer = bson.D{ok}
	case "listCollections":
		found := bson.A{}
		if want, _ := get(command, "filter.name").(string); s.docs[want] != nil {
			found = append(found, bson.D{{Key: "name", Value: want}, {Key: "type", Value: "collection"}, {Key: "options", Value: bson.D{}}})
		}
		answer = batch(0, "firstBatch", found)
	case "find":
		found := bson.A{}
		if i := s.index(coll, doc(command, "filter")); i >= 0 {
			found = append(found, s.docs[coll][i])
		}
		answer = batch(0, "firstBatch", found)
	case "findAndModify":
		answer = bson.D{{Key: "value", Value: nil}, ok}
		if i := s.index(coll, doc(command, "query")); i >= 0 {
			answer = bson.D{{Key: "value", Value: s.set(coll, i, doc(command, "update"))}, ok}
		}
	case "update":
		answer = s.update(coll, get(command, "updates").(bson.A)[0].(bson.D))
	case "insert":
		for _, d := range get(command, "documents").(bson.A) {
			s.docs[coll] = append(s.docs[coll], d.(bson.D))
			s.happened(coll, "insert", get(d.(bson.D), "_id"), bson.E{Key: "fullDocument", Value: d})
		}
		answer = bson.D{{Key: "n", Value: 1}, ok}
	case "delete":
		answer = bson.D{{Key: "n", Value: 0}, ok}
		if i := s.index(coll, doc(get(command, "deletes").(bson.A)[0].(bson.D), "q")); i >= 0 {
			s.happened(coll, "delete", get(s.docs[coll][i], "_id"))
			s.docs[coll] = slices.Delete(s.docs[coll], i, i+1)
			answer = bson.D{{Key: "n", Value: 1}, ok}
		}
	case "drop":
		delete(s.docs, coll)
		s.happened(coll, "drop", nil)
		s.happened(coll, "invalidate", nil)
		answer = bson.D{ok}
	case "aggregate":
		answer = s.open(coll, get(command, "pipeline").(bson.A))
	default:
		answer = failure(59, "the stand-in does not know "+name)
	}
	s.mu.Unlock()
	return s.intercepted(name, command, answer)
}

func failure(code int, text string, labels ...string) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: text}, {Key: "errorLabels", Value: labels}}
}

func batch(id int64, name string, docs bson.A) bson.D {
	return bson.D{{Key: "cursor", Value: bson.D{
		{Key: "id", Value: id}, {Key: "ns", Value: "test.c"}, {Key: name, Value: docs},
	}}, ok}
}

func (s *standin) index(coll string, filter bson.D) int {
	return slices.IndexFunc(s.docs[coll], func(d bson.D) bool { return matches(d, filter) })
}

func (s *standin) set(coll string, i int, change bson.D) bson.D {
	d := updated(s.docs[coll][i], change)
	s.docs[coll][i] = d
	s.happened(coll, "update", get(d, "_id"))
	return d
}

func (s *standin) update(coll string, u bson.D) bson.D {
	q, change := doc(u, "q"), doc(u, "u")
	upsert, _ := get(u, "upsert").(bool)
	id := bson.D{{Key: "_id", Value: get(q, "_id")}}
	switch i := s.index(coll, q); {
	case i >= 0:
		s.set(coll, i, change)
		return bson.D{{Key: "n", Value: 1}, {Key: "nModified", Value: 1}, ok}
	case !upsert:
		return bson.D{{Key: "n", Value: 0}, {Key: "nModified", Value: 0}, ok}
	case s.index(coll, id) >= 0:
		return bson.D{{Key: "n", Value: 0}, {Key: "writeErrors", Value: bson.A{bson.D{
			{Key: "index", Value: 0}, {Key: "code", Value: 11000}, {Key: "errmsg", Value: "E11000 duplicate key error"},
		}}}, ok}
	}
	d := updated(q, change) // what is made begins with the equalities of the filter
	s.docs[coll] = append(s.docs[coll], d)
	s.happened(coll, "insert", id[0].Value, bson.E{Key: "fullDocument", Value: d})
	return bson.D{{Key: "n", Value: 1}, {Key: "nModified", Value: 0}, {Key: "upserted", Value: bson.A{
		bson.D{{Key: "index", Value: 0}, {Key: "_id", Value: id[0].Value}},
	}}, ok}
}

// open opens a change stream; mu is held.
func (s *standin) open(coll string, pipeline bson.A) bson.D {
	c := &standinCursor{coll: coll, at: len(s.log), match: doc(pipeline[1].(bson.D), "$match")}
	for _, name := range []string{"resumeAfter", "startAfter"} {
		if at, ok := get(pipeline[0].(bson.D), "$changeStream."+name+"._data").(string); ok {
			c.at, _ = strconv.Atoi(at)
		}
	}
	id := int64(len(s.cursors)+1)<<32 | time.Now().UnixNano()&0xffffffff
	s.cursors[id] = c
	answer := batch(id, "firstBatch", bson.A{})
	answer[0].Value = append(answer[0].Value.(bson.D), bson.E{Key: "postBatchResumeToken", Value: token(c.at)})
	return answer
}

// more waits for events of a change stream.
func (s *standin) more(command bson.D) bson.D {
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
		for ; c.at < len(s.log) && !c.over; c.at++ {
			event := s.log[c.at]
			if get(event, "ns.coll") != c.coll {
				continue
			}
			c.over = get(event, "operationType") == "invalidate"
			if get(event, "operationType") == "update" { // updateLookup
				var now any
				if i := s.index(c.coll, doc(event, "documentKey")); i >= 0 {
					now = s.docs[c.coll][i]
				}
				event = append(slices.Clone(event), bson.E{Key: "fullDocument", Value: now})
			}
			if matches(event, c.match) {
				found = append(found, event)
			}
		}
		if c.over {
			next = 0
		}
		at := c.at
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
			answer := batch(next, "nextBatch", found)
			answer[0].Value = append(answer[0].Value.(bson.D), bson.E{Key: "postBatchResumeToken", Value: token(at)})
			return answer
		}
	}
}

// get is the value at a dotted path.
func get(d bson.D, path string) any {
	name, rest, more := strings.Cut(path, ".")
	for _, e := range d {
		if e.Key != name {
			continue
		}
		if sub, ok := e.Value.(bson.D); ok && more {
			return get(sub, rest)
		} else if more {
			return nil
		}
		return e.Value
	}
	return nil
}

func doc(d bson.D, path string) bson.D { v, _ := get(d, path).(bson.D); return v }

// equal compares values by their encoding.
func equal(a, b any) bool {
	x, err1 := bson.Marshal(bson.D{{Key: "v", Value: a}})
	y, err2 := bson.Marshal(bson.D{{Key: "v", Value: b}})
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// matches knows equality, $or, $in and $exists.
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
			ok = slices.ContainsFunc(operator[0].Value.(bson.A), func(v any) bool { return equal(v, get(d, e.Key)) })
		case len(operator) == 1 && operator[0].Key == "$exists":
			ok = (get(d, e.Key) != nil) == operator[0].Value.(bool)
		case strings.HasPrefix(e.Key, "$"), len(operator) > 0 && strings.HasPrefix(operator[0].Key, "$"):
			panic(fmt.Sprintf("the stand-in does not know %v", e))
		default:
			ok = equal(get(d, e.Key), e.Value)
		}
		if !ok {
			return false
		}
	}
	return true
}

// updated is d after $set, $setOnInsert and $currentDate.
func updated(d, update bson.D) bson.D {
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
				panic("the stand-in does not know " + e.Key)
			}
		}
	}
	return d
}

func token(at int) bson.D { return bson.D{{Key: "_data", Value: strconv.Itoa(at)}} }

// happened writes an event; mu is held.
func (s *standin) happened(coll, kind string, key any, more ...bson.E) {
	event := bson.D{
		{Key: "_id", Value: token(len(s.log) + 1)},
		{Key: "operationType", Value: kind},
		{Key: "ns", Value: bson.D{{Key: "db", Value: "test"}, {Key: "coll", Value: coll}}},
	}
	if key != nil {
		event = append(event, bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: key}}})
	}
	s.log = append(s.log, append(event, more...))
	s.wake()
}

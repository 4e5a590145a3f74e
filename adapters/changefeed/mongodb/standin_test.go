package mongodb_test

// A stand-in for a replica set, for where there is no MongoDB: it speaks the wire protocol
// and knows the commands that the store sends, no more of them than that. It shows what
// store and driver do. What a server does only a server can show.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// standin is one member, which is primary. Data and oplog outlive a restart.
type standin struct {
	t    testing.TB
	addr string
	wg   sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	docs     map[string][]bson.D // by collection
	log      []bson.D            // events
	changed  chan struct{}
	cursors  map[int64]*standinCursor
	counts   map[string]int // of commands

	// intercept may answer in the place of a command, or change what it has answered.
	intercept func(name string, command, answer bson.D) bson.D
}

type standinCursor struct {
	match bson.D
	coll  string
	at    int
	over  bool // after an invalidate
}

func newStandin(t testing.TB) *standin {
	s := &standin{
		t: t, conns: map[net.Conn]struct{}{}, docs: map[string][]bson.D{},
		changed: make(chan struct{}), cursors: map[int64]*standinCursor{}, counts: map[string]int{},
	}
	s.listen("127.0.0.1:0")
	t.Cleanup(func() { s.stop(); s.wg.Wait() })
	return s
}

func (s *standin) uri() string {
	return "mongodb://" + s.addr + "/?replicaSet=rs&serverSelectionTimeoutMS=5000"
}

func (s *standin) listen(addr string) {
	l, err := net.Listen("tcp", addr)
	require.NoError(s.t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener, s.addr = l, l.Addr().String()
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = struct{}{}
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(c) })
		}
	})
}

// stop ends all connections, as kill -9 does.
func (s *standin) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener.Close()
	for c := range s.conns {
		c.Close()
	}
	s.cursors = map[int64]*standinCursor{}
	s.wake()
}

func (s *standin) restart() {
	s.stop()
	s.listen(s.addr)
}

func (s *standin) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *standin) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[name]
}

// serve answers the messages (OP_MSG, and the OP_QUERY of a first hello) of a connection.
func (s *standin) serve(c net.Conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	for {
		var head [16]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.LittleEndian.Uint32(head[:])-16)
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		var command bson.D
		code, prefix := uint32(2013), []byte{0, 0, 0, 0, 0}
		if binary.LittleEndian.Uint32(head[12:]) == 2004 {
			code, prefix = 1, make([]byte, 20)
			prefix[16] = 1                          // one document
			end := 4 + bytes.IndexByte(body[4:], 0) // of the namespace
			command = parse(body[end+9:])
		} else {
			command = message(body)
		}
		answer := s.answer(command)
		if answer == nil {
			return
		}
		doc, err := bson.Marshal(answer)
		if err != nil {
			panic(err)
		}
		out := make([]byte, 16, 16+len(prefix)+len(doc))
		binary.LittleEndian.PutUint32(out, uint32(cap(out)))
		copy(out[8:12], head[4:8]) // in answer to
		binary.LittleEndian.PutUint32(out[12:], code)
		if _, err := c.Write(append(append(out, prefix...), doc...)); err != nil {
			return
		}
	}
}

// message is the document of an OP_MSG, with its sequences as arrays.
func message(body []byte) bson.D {
	var all bson.D
	for rest := body[4:]; len(rest) > 0; {
		size := binary.LittleEndian.Uint32(rest[1:])
		if rest[0] == 0 {
			all = append(parse(rest[1:1+size]), all...)
		} else {
			end := 5 + bytes.IndexByte(rest[5:], 0)
			list := bson.A{}
			for docs := rest[end+1 : 1+size]; len(docs) > 0; {
				n := binary.LittleEndian.Uint32(docs)
				list = append(list, parse(docs[:n]))
				docs = docs[n:]
			}
			all = append(all, bson.E{Key: string(rest[5:end]), Value: list})
		}
		rest = rest[1+size:]
	}
	return all
}

func parse(raw []byte) bson.D {
	var d bson.D
	if err := bson.Unmarshal(raw, &d); err != nil {
		panic(err)
	}
	return d
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

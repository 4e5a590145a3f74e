package mongodb_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

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

// on has f answer in the place of the server, from now on.
func (s *standin) on(f func(name string, command, answer bson.D) bson.D) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

func (s *standin) intercepted(name string, command, answer bson.D) bson.D {
	s.mu.Lock()
	intercept := s.intercept
	s.mu.Unlock()
	if intercept != nil {
		return intercept(name, command, answer)
	}
	return answer
}

// failing has every command of a name fail.
func failing(name string, code int) func(string, bson.D, bson.D) bson.D {
	return func(n string, _, answer bson.D) bson.D {
		if n == name {
			return failure(code, "as it was told to")
		}
		return answer
	}
}

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

// fakeServer is a member of a replica set: its only member, or the primary or the secondary of two fake servers. It
// implements the wire protocol and the commands that the store sends. So tests with it test the store and the driver,
// but not MongoDB. Data and oplog survive a restart.
type fakeServer struct {
	t    testing.TB
	addr string
	wg   sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	docs     map[string][]bson.D // docs contains the documents by collection.
	oplog    []bson.D            // oplog contains the change events of all collections.
	changed  chan struct{}       // changed is closed, and replaced, when an event is appended.
	cursors  map[int64]*fakeCursor
	counts   map[string]int // counts contains the number of commands by name.

	other     *fakeServer // other is the other member of the replica set, or nil.
	secondary bool        // secondary reports whether the other member is the primary.
	rejection bson.D      // rejection is the reply to every command that writes, or nil.
	intercept interceptor // intercept changes replies, unless it is nil.
}

// interceptor returns the reply to a command, given the reply of the server. If it returns nil,
// the server closes the connection.
type interceptor func(name string, command, reply bson.D) bson.D

// fakeCursor is the cursor of a change stream.
type fakeCursor struct {
	match bson.D
	coll  string
	next  int  // next is the index of the next event in the oplog.
	ended bool // ended reports whether an invalidate event has ended the stream.
}

func newFakeServer(t testing.TB) *fakeServer {
	s := &fakeServer{
		t: t, conns: map[net.Conn]struct{}{}, docs: map[string][]bson.D{},
		changed: make(chan struct{}), cursors: map[int64]*fakeCursor{}, counts: map[string]int{},
	}
	s.listen("127.0.0.1:0")
	t.Cleanup(func() { s.stop(); s.wg.Wait() })
	return s
}

func (s *fakeServer) uri() string {
	return "mongodb://" + s.addr + "/?replicaSet=rs&serverSelectionTimeoutMS=5000"
}

func (s *fakeServer) listen(addr string) {
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

// stop closes all connections without further messages.
func (s *fakeServer) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener.Close()
	for c := range s.conns {
		c.Close()
	}
	s.cursors = map[int64]*fakeCursor{}
	s.wake()
}

func (s *fakeServer) restart() {
	s.stop()
	s.listen(s.addr)
}

// wake notifies the cursors that wait. The caller must hold mu.
func (s *fakeServer) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// countCommands returns the number of commands with a name.
func (s *fakeServer) countCommands(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[name]
}

// serve answers the messages of a connection: OP_MSG, and the OP_QUERY of the first hello.
func (s *fakeServer) serve(c net.Conn) {
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
			prefix[16] = 1                          // the reply contains one document
			end := 4 + bytes.IndexByte(body[4:], 0) // the position after the namespace
			command = parse(body[end+9:])
		} else {
			command = parseMessage(body)
		}
		reply := s.execute(command)
		if reply == nil {
			return
		}
		doc, err := bson.Marshal(reply)
		if err != nil {
			panic(err)
		}
		out := make([]byte, 16, 16+len(prefix)+len(doc))
		binary.LittleEndian.PutUint32(out, uint32(cap(out)))
		copy(out[8:12], head[4:8]) // the reply refers to the ID of the request
		binary.LittleEndian.PutUint32(out[12:], code)
		if _, err := c.Write(append(append(out, prefix...), doc...)); err != nil {
			return
		}
	}
}

// parseMessage returns the document of an OP_MSG, with its sequences as arrays.
func parseMessage(body []byte) bson.D {
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

// setInterceptor sets the interceptor of later commands, or removes it if f is nil.
func (s *fakeServer) setInterceptor(f interceptor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

// interceptReply returns the reply that the interceptor returns, or reply if there is no interceptor.
func (s *fakeServer) interceptReply(name string, command, reply bson.D) bson.D {
	s.mu.Lock()
	intercept := s.intercept
	s.mu.Unlock()
	if intercept != nil {
		return intercept(name, command, reply)
	}
	return reply
}

// failCommand returns an interceptor that makes every command with the given name fail.
func failCommand(name string, code int) interceptor {
	return func(n string, _, reply bson.D) bson.D {
		if n == name {
			return failure(code, "injected failure")
		}
		return reply
	}
}

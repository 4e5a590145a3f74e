//go:build linux

package interop

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/zkdial"
)

// chaosVariable is the environment variable that makes the test binary run as a participant of
// TestChaos_HoldersDoNotOverlap.
const chaosVariable = "LEADERELECTION_CHAOS"

// recorder writes records of the holds of one goroutine to a file.
type recorder struct {
	file *os.File
	next int64
}

// recordHold calls the function holds repeatedly, and records the times of these checks, until holds returns false or
// limit has passed.
func (r *recorder) recordHold(resource string, holds func() bool, limit time.Duration) error {
	at, first := r.next, int64(0)
	for end := time.Now().Add(limit); ; time.Sleep(2 * time.Millisecond) {
		before := monotonicTime()
		if !holds() {
			return nil
		}
		if first == 0 {
			first = monotonicTime()
			r.next += int64(len(fmt.Sprintf(recordFormat, "", 0, 0)))
		}
		if _, err := r.file.WriteAt(fmt.Appendf(nil, recordFormat, resource, first, before), at); err != nil {
			return err
		}
		if time.Now().After(end) {
			return nil
		}
	}
}

// participant takes part in an election, a lock and a queue until the process is killed.
type participant struct {
	servers     []string
	timeout     time.Duration
	path, files string
	layout      recipes.Option
	options     []leaderelection.Option
}

// runParticipant runs a participant with the settings in the arguments: the servers, the session timeout in
// milliseconds, the prefix of the paths, and the prefix of the names of the files for records.
func runParticipant() {
	timeout, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	p := participant{
		servers: strings.Split(os.Args[1], ","), timeout: time.Duration(timeout) * time.Millisecond,
		path: os.Args[3], files: os.Args[4],
		layout:  recipes.Option{},
		options: []leaderelection.Option{leaderelection.WithCreateNode(), leaderelection.WithRejoin()},
	}
	if p.path == "/kazoo" {
		p.layout, p.options = recipes.WithKazooLayout(), append(p.options, leaderelection.WithKazooNames())
	}
	for role, run := range map[string]func(*zk.Conn, *recorder) error{"election": p.elect, "lock": p.lock, "queue": p.consume, "put": p.putItems} {
		file, err := os.Create(p.files + role)
		if err != nil {
			log.Fatal(err)
		}
		go p.repeat(&recorder{file: file}, run)
	}
	select {}
}

// repeat calls run forever, each time on a new connection.
func (p *participant) repeat(r *recorder, run func(*zk.Conn, *recorder) error) {
	for {
		conn, _, err := zkdial.Connect(p.servers, p.timeout)
		if err != nil {
			log.Fatal(err)
		}
		err = run(conn, r)
		log.Print(err)
		conn.Close()
		time.Sleep(50 * time.Millisecond)
	}
}

// elect joins an election and leads, again and again. A quarter of the leaderships end because their
// connection is closed.
func (p *participant) elect(conn *zk.Conn, r *recorder) error {
	for {
		candidate, err := leaderelection.NewElection(conn, p.path+"/election", p.options...)
		if err != nil {
			return err
		}
		go candidate.ElectLeader()
		for status := range candidate.Status() {
			if status.Err != nil {
				return status.Err
			}
			if status.Role != leaderelection.Leader {
				continue
			}
			leads := func() bool { return status.Leadership.Err() == nil }
			if rand.IntN(4) == 0 {
				time.AfterFunc(500*time.Millisecond, conn.Close)
			}
			if err := r.recordHold("election", leads, 300*time.Millisecond+rand.N(1700*time.Millisecond)); err != nil {
				return err
			}
			break
		}
		if err := candidate.Resign(); err != nil {
			return err
		}
	}
}

func (p *participant) lock(conn *zk.Conn, r *recorder) error {
	mutex, err := lock.NewMutex(conn, p.path+"/lock", p.layout)
	if err != nil {
		return err
	}
	for {
		h, err := mutex.Lock(context.Background())
		if err != nil {
			return err
		}
		if err := r.recordHold("lock/"+h.Path()[len(h.Path())-10:], func() bool { return h.Err() == nil }, rand.N(300*time.Millisecond)); err != nil {
			return err
		}
		if err := h.Release(); err != nil {
			log.Print(err)
		}
	}
}

func (p *participant) consume(conn *zk.Conn, r *recorder) error {
	q, err := queue.New(conn, p.path+"/queue", p.layout)
	if err != nil {
		return err
	}
	for item, err := range q.Items(context.Background()) {
		if err != nil {
			return err
		}
		if err := r.recordHold(string(item.Data())+"/"+item.ID()[len(item.ID())-10:], func() bool { return item.Err() == nil }, rand.N(20*time.Millisecond)); err != nil {
			return err
		}
		if err := item.Ack(); err != nil {
			log.Print(err)
		}
	}
	return nil
}

func (p *participant) putItems(conn *zk.Conn, _ *recorder) error {
	q, err := queue.New(conn, p.path+"/queue", p.layout)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		if _, err := q.Put(context.Background(), fmt.Appendf(nil, "item-go-%d-%d", os.Getpid(), n)); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

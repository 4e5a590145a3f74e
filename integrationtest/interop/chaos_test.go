//go:build linux

package interop

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

var (
	chaosTime = flag.Duration("chaos", 5*time.Second, "the time in which TestChaos_HoldersDoNotOverlap injects faults; make chaos uses 15m")
	chaosSeed = flag.Uint64("chaos.seed", 0, "the seed of the faults; 0 is a random one")
)

// chaosTimeout is the session timeout of the participants of TestChaos_HoldersDoNotOverlap.
const chaosTimeout = 5 * time.Second

// recordFormat is the format of a record in the file of a participant: a resource, the time after the first
// successful check of a hold, and the time before the last one, in nanoseconds of CLOCK_MONOTONIC, which all
// processes of a machine share. The participant overwrites the record with each check. After a lock, the resource
// contains a slash and the sequence number of the holder's znode; after an item, the sequence number of the item, if
// it is known.
const recordFormat = "%-40s %20d %20d\n"

// recordedHold is one record, with the language of the participant that has written it.
type recordedHold struct {
	language, resource string
	first, last        int64
	sequence           int // the sequence number of the holder's znode; 0 if it was not recorded
}

// overlap describes two participants that held a resource at the same time.
type overlap struct {
	former, next recordedHold
	length       time.Duration
}

// findOverlaps returns the overlaps of holds of the same resource: a successful check of the former hold began after
// a successful check of the next hold. The servers grant a lock in the order of the sequence numbers. If these are
// unknown, findOverlaps assumes that the hold that was recorded first is the former one. That can be wrong if a
// participant was paused between the grant and its first check.
func findOverlaps(holds []recordedHold) (found []overlap) {
	slices.SortFunc(holds, func(a, b recordedHold) int {
		return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.first, b.first))
	})
	for i, former := range holds {
		for _, next := range holds[i+1:] {
			if next.resource != former.resource || next.first >= former.last {
				break
			}
			o := overlap{former, next, time.Duration(min(former.last, next.last) - next.first)}
			if former.sequence > next.sequence && next.sequence > 0 {
				o.former, o.next = next, former
			}
			found = append(found, o)
		}
	}
	return found
}

// mayBeTwoItems reports whether the two participants may have held different items with the same data: a producer
// that uses Curator puts an item again if it has lost the reply.
func (o overlap) mayBeTwoItems() bool {
	return strings.HasPrefix(o.former.resource, "item-java-") && (o.former.sequence != o.next.sequence || o.former.sequence == 0)
}

// TestFindOverlaps_IgnoresConsecutiveHolds checks that findOverlaps returns each overlap of two holds, and does not
// return holds that follow one another.
func TestFindOverlaps_IgnoresConsecutiveHolds(t *testing.T) {
	a, b, c := recordedHold{"go", "x", 1, 5, 0}, recordedHold{"java", "x", 4, 9, 0}, recordedHold{"go", "x", 9, 12, 0}
	other := recordedHold{"go", "y", 2, 20, 0}
	assert.Equal(t, []overlap{{a, b, 1}}, findOverlaps([]recordedHold{c, other, b, a}))
	a.sequence, b.sequence = 2, 1
	assert.Equal(t, []overlap{{b, a, 1}}, findOverlaps([]recordedHold{a, b}), "b was paused after the grant")
	b.sequence = 3
	assert.Equal(t, []overlap{{a, b, 1}}, findOverlaps([]recordedHold{a, b}))
}

// chaosGroup is a set of participants that use the same layout of znodes.
type chaosGroup struct {
	path    string
	command []string // the command line of the participants that use the peer's library
}

// chaosProcess is the process of a participant, which the test starts again after it was killed.
type chaosProcess struct {
	language string
	command  []string
	*testenv.Process
}

// chaos contains the servers and the participants of TestChaos_HoldersDoNotOverlap.
type chaos struct {
	*testing.T
	servers *ensemble.Ensemble
	dir     string

	mu    sync.Mutex // guards the fields below, which the test and one goroutine for each kind of fault use
	runs  int
	count map[string]int // the number of faults of each kind
}

func (c *chaos) start(p *chaosProcess, path string) {
	c.mu.Lock()
	c.runs++
	files := filepath.Join(c.dir, fmt.Sprintf("%s-%d-%s-", p.language, c.runs, path[1:]))
	c.mu.Unlock()
	args := append(slices.Clone(p.command), strings.Join(c.servers.Addrs(), ","), fmt.Sprint(chaosTimeout.Milliseconds()), path, files)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), chaosVariable+"=yes")
	log, err := os.OpenFile(filepath.Join(c.dir, p.language+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(c, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	p.Process, err = testenv.StartProcess(cmd)
	require.NoError(c, err)
}

// wait waits for a random time between least and most, or until ended is closed. It reports whether ended was closed.
func (c *chaos) wait(ended <-chan struct{}, least, most time.Duration) (isOver bool) {
	select {
	case <-ended:
		return true
	case <-time.After(least + rand.N(most-least)):
		return false
	}
}

func (c *chaos) countFault(fault string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[fault]++
}

// injectServerFaults injects faults of servers one after another, so that most of the time there is a quorum.
func (c *chaos) injectServerFaults(random *rand.Rand, ended <-chan struct{}) {
	for !c.wait(ended, time.Second, 4*time.Second) {
		i := random.IntN(c.servers.Servers())
		var repair func(int) error
		switch random.IntN(4) {
		case 0:
			c.countFault("server killed")
			assert.NoError(c, c.servers.Kill(i))
			repair = c.servers.Start
		case 1, 2:
			c.countFault("server paused")
			assert.NoError(c, c.servers.Pause(i))
			repair = c.servers.Resume
		case 3:
			c.countFault("server partitioned")
			assert.NoError(c, c.servers.CutOff(i))
			repair = c.servers.Heal
		}
		c.wait(ended, chaosTimeout/5, chaosTimeout*7/5)
		assert.NoError(c, repair(i))
	}
}

// injectProcessFaults kills and pauses participants.
func (c *chaos) injectProcessFaults(random *rand.Rand, ended <-chan struct{}, processes []*chaosProcess, paths []string) {
	for !c.wait(ended, time.Second, 3*time.Second) {
		i := random.IntN(len(processes))
		if p := processes[i]; random.IntN(2) == 0 {
			c.countFault(p.language + " killed")
			assert.NoError(c, p.Kill(c.Context()))
			c.start(p, paths[i])
		} else {
			c.countFault(p.language + " paused")
			assert.NoError(c, p.Pause())
			c.wait(ended, chaosTimeout/5, chaosTimeout*7/5)
			assert.NoError(c, p.Resume())
		}
	}
}

// readHolds returns the recorded holds by group and kind of resource: election, lock, queue.
func (c *chaos) readHolds() map[string][]recordedHold {
	files, err := filepath.Glob(filepath.Join(c.dir, "*-*-*-*"))
	require.NoError(c, err)
	holds := map[string][]recordedHold{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(c, err)
		words := strings.Split(filepath.Base(file), "-") // files are named <language>-<number>-<group>-<role>
		for line := range strings.Lines(string(text)) {
			h := recordedHold{language: words[0]}
			if n, _ := fmt.Sscan(line, &h.resource, &h.first, &h.last); n == 3 {
				name, sequence, _ := strings.Cut(h.resource, "/")
				h.resource, h.sequence = name, 0
				if sequence != "" {
					h.sequence, err = strconv.Atoi(sequence)
					require.NoError(c, err, line)
				}
				holds[words[2]+" "+words[3]] = append(holds[words[2]+" "+words[3]], h)
			} // ignore an incomplete record: the process was killed while writing it
		}
	}
	return holds
}

// monotonicTime returns the time of CLOCK_MONOTONIC in nanoseconds.
func monotonicTime() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

// TestChaos_HoldersDoNotOverlap checks that a participant in Go does not lead, or hold a lock or an item, after
// another participant has begun to do so, while servers and participants are killed, paused and partitioned. The
// participants are programs of this library together with programs of Curator, and with programs of kazoo. An overlap
// whose former holder uses Curator or kazoo is only logged. After the faults, a participant in Go must acquire each
// kind of resource.
func TestChaos_HoldersDoNotOverlap(t *testing.T) {
	curator.requirePeer(t)
	kazoo.requirePeer(t)
	self, err := os.Executable()
	require.NoError(t, err)
	groups := []chaosGroup{
		{"/curator", append(slices.Clone(curator.args[:len(curator.args)-1]), "testdata/ChaosPeer.java")},
		{"/kazoo", []string{kazoo.args[0], "testdata/chaos_peer.py"}},
	}
	c := &chaos{
		T: t, dir: t.TempDir(), count: map[string]int{},
		servers: ensemble.StartServers(t, ensemble.Config{Servers: 3, TickTime: chaosTimeout / 20}),
	}
	var processes []*chaosProcess
	var paths []string
	for _, g := range groups {
		for _, p := range []*chaosProcess{
			{language: "go", command: []string{self}},
			{language: "go", command: []string{self}},
			{language: strings.TrimPrefix(g.path, "/"), command: g.command},
		} {
			c.start(p, g.path)
			processes, paths = append(processes, p), append(paths, g.path)
		}
	}
	defer func() {
		for _, p := range processes {
			assert.NoError(t, p.Kill(testenv.ContextOf(t)))
		}
		if t.Failed() {
			for _, language := range []string{"go", "curator", "kazoo"} {
				t.Logf("%s:\n%s", language, testenv.LastLinesOf(filepath.Join(c.dir, language+".log")))
			}
		}
	}()

	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	ended := make(chan struct{})
	var faults sync.WaitGroup
	faults.Go(func() { c.injectServerFaults(rand.New(rand.NewPCG(seed, 1)), ended) })
	faults.Go(func() { c.injectProcessFaults(rand.New(rand.NewPCG(seed, 2)), ended, processes, paths) })
	time.Sleep(*chaosTime)
	close(ended)
	faults.Wait()
	healed := monotonicTime()

	require.EventuallyWithT(t, func(t *assert.CollectT) {
		holds := c.readHolds()
		for _, g := range groups {
			for _, role := range []string{"election", "lock", "queue"} {
				afterFaults := func(h recordedHold) bool { return h.language == "go" && h.first > healed }
				assert.True(t, slices.ContainsFunc(holds[g.path[1:]+" "+role], afterFaults), "%s %s is not acquired in Go", g.path, role)
			}
		}
	}, testenv.WaitLimit, 100*time.Millisecond, "after the faults")

	t.Logf("seed %d, faults %v", seed, c.count)
	for name, holds := range c.readHolds() {
		byLanguage := map[string]int{}
		for _, h := range holds {
			byLanguage[h.language]++
		}
		t.Logf("%s: holds %v", name, byLanguage)
		for _, o := range findOverlaps(holds) {
			text := fmt.Sprintf("%s: a participant in %s held it for %v after one in %s had acquired it (%+v, %+v)",
				name, o.former.language, o.length, o.next.language, o.former, o.next)
			if o.former.language == "go" && !o.mayBeTwoItems() {
				assert.Fail(t, text)
			} else {
				t.Log(text)
			}
		}
	}
}

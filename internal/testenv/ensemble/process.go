package ensemble

// The backend that runs the ZooKeeper of Debian's package as child processes.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/testenv/loopback"
	"github.com/go-leaderelection/leaderelection/internal/testenv/serverdir"
)

const (
	debianJar = "/usr/share/java/zookeeper.jar"
	// debianLogJar makes a server write its log to standard error; a dependency
	// of the package brings it. With more jars of that folder the logging
	// bridges clash.
	debianLogJar = "/usr/share/java/slf4j-simple.jar"

	mainClass = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
)

// processBackend runs each server in a child process with a directory of its
// own. Servers reach each other through links.
type processBackend struct {
	cfg     Config
	java    string
	dir     string
	spawner *spawner

	client, quorum, election []*loopback.Port
	// links[a][b] are the links that server a opens to server b, quorum and
	// election; nil for a == b.
	links [][][]*link
	cut   []bool
	procs []*child
}

// child is one run of a server.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and was waited for
}

// findProcessBackend says what is missing for child processes, if anything.
func findProcessBackend() (java string, err error) {
	if java, err = exec.LookPath("java"); err != nil {
		return "", errors.New("no java on the PATH")
	}
	if _, err := os.Stat(debianJar); err != nil {
		return "", fmt.Errorf("no %s", debianJar)
	}
	return java, nil
}

func openProcessBackend(cfg Config) (Servers, error) {
	java, err := findProcessBackend()
	if err != nil {
		return nil, err
	}
	b := &processBackend{
		cfg: cfg, java: java, spawner: newSpawner(),
		cut: make([]bool, cfg.Servers), procs: make([]*child, cfg.Servers),
	}
	if err := b.prepare(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *processBackend) prepare() (err error) {
	if b.dir, err = serverdir.Make("zk-ensemble"); err != nil {
		return err
	}
	kinds := []*[]*loopback.Port{&b.client}
	if b.cfg.Servers > 1 {
		kinds = append(kinds, &b.quorum, &b.election)
	}
	for _, kind := range kinds {
		for range b.cfg.Servers {
			r, err := loopback.Reserve()
			if err != nil {
				return err
			}
			*kind = append(*kind, r)
		}
	}
	if b.cfg.Servers > 1 {
		if err := b.makeLinks(); err != nil {
			return err
		}
	}
	for i := range b.cfg.Servers {
		if err := b.writeFiles(i); err != nil {
			return err
		}
	}
	return nil
}

func (b *processBackend) makeLinks() error {
	b.links = make([][][]*link, b.cfg.Servers)
	for from := range b.links {
		b.links[from] = make([][]*link, b.cfg.Servers)
		for to := range b.links[from] {
			if from == to {
				continue
			}
			for _, port := range []*loopback.Port{b.quorum[to], b.election[to]} {
				l, err := newLink(loopbackAddr(port.Number), port == b.election[to])
				if err != nil {
					return err
				}
				b.links[from][to] = append(b.links[from][to], l)
			}
		}
	}
	return nil
}

func (b *processBackend) serverDir(i int) string {
	return filepath.Join(b.dir, "server"+strconv.Itoa(i))
}

func (b *processBackend) writeFiles(i int) error {
	data := filepath.Join(b.serverDir(i), "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	var members []Member
	if b.cfg.Servers > 1 {
		for peer := range b.cfg.Servers {
			m := Member{"127.0.0.1", b.quorum[i].Number, b.election[i].Number}
			if peer != i {
				l := b.links[i][peer]
				m.QuorumPort, m.ElectionPort = l[0].port(), l[1].port()
			}
			members = append(members, m)
		}
	}
	for name, text := range map[string]string{
		"data/myid": strconv.Itoa(i+1) + "\n",
		"zoo.cfg":   ZooCfg(b.cfg, data, "127.0.0.1", b.client[i].Number, members),
	} {
		if err := os.WriteFile(filepath.Join(b.serverDir(i), name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (b *processBackend) Kind() Backend { return Process }

func (b *processBackend) Ports() []int {
	ports := make([]int, len(b.client))
	for i, r := range b.client {
		ports[i] = r.Number
	}
	return ports
}

func (b *processBackend) Start(_ context.Context, i int) error {
	dir := b.serverDir(i)
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	args := append([]string{"-Dorg.slf4j.simpleLogger.showDateTime=true"}, JavaFlags...)
	args = append(args, "-cp", debianJar+string(filepath.ListSeparator)+debianLogJar,
		mainClass, filepath.Join(dir, "zoo.cfg"))
	cmd := exec.Command(b.java, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = log, log
	if err := b.spawner.start(cmd); err != nil {
		return err
	}
	c := &child{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		cmd.Wait() // how it ended does not matter
	}()
	b.procs[i] = c
	return nil
}

func (b *processBackend) Kill(ctx context.Context, i int) error {
	c := b.procs[i]
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *processBackend) Pause(_ context.Context, i int) error {
	return freeze(b.procs[i].cmd.Process)
}

func (b *processBackend) Resume(_ context.Context, i int) error {
	return thaw(b.procs[i].cmd.Process)
}

func (b *processBackend) CutOff(_ context.Context, i int) error {
	b.setCut(i, true)
	return nil
}

func (b *processBackend) Heal(_ context.Context, i int) error {
	b.setCut(i, false)
	return nil
}

func (b *processBackend) setCut(i int, cut bool) {
	b.cut[i] = cut
	for from, row := range b.links {
		for to, links := range row {
			for _, l := range links {
				l.setCut(b.cut[from] || b.cut[to])
			}
		}
	}
}

func (b *processBackend) Exited(_ context.Context, i int) bool {
	select {
	case <-b.procs[i].done:
		return true
	default:
		return false
	}
}

func (b *processBackend) Log(_ context.Context, i int) string {
	text, err := os.ReadFile(filepath.Join(b.serverDir(i), "log"))
	if err != nil {
		return err.Error()
	}
	return LastLines(string(text))
}

func (b *processBackend) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), StepTimeout)
	defer cancel()
	var errs []error
	for i, c := range b.procs {
		if c != nil {
			errs = append(errs, b.Kill(ctx, i))
		}
	}
	b.spawner.close()
	for _, row := range b.links {
		for _, links := range row {
			for _, l := range links {
				l.close()
			}
		}
	}
	for _, kind := range [][]*loopback.Port{b.client, b.quorum, b.election} {
		for _, r := range kind {
			r.Release()
		}
	}
	if b.dir != "" {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}

// LastLines shortens a log to what fits into an error. A stack trace is long,
// so it is more than a few lines.
func LastLines(text string) string {
	const most = 40
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

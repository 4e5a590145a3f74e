package ensemble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

const (
	debianJar = "/usr/share/java/zookeeper.jar"
	// debianLogJar makes a server write its log to standard error. Debian installs this file with the package. The
	// class path does not contain the other jars in the same directory, because they would conflict with each other.
	debianLogJar = "/usr/share/java/slf4j-simple.jar"

	mainClass = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

	// dialTimeout is how long a proxy between two servers tries to connect. Right after an election, a follower
	// often connects before its leader listens. Without a proxy, the connection would be refused, and the follower
	// would try again. But the proxy has accepted the connection, and if the proxy closed it, the follower would
	// start another election.
	dialTimeout = time.Second
)

// processBackend runs each server of Debian's ZooKeeper package as a child process with its own directory. The
// servers reach each other through proxies.
type processBackend struct {
	cfg  Config
	java string
	dir  string

	client, quorum, election []*testenv.Port
	// proxies[a][b] contains the proxies through which server a connects to server b: one proxy for the quorum port
	// and one for the election port. proxies[a][a] is nil.
	proxies [][][]*testenv.Proxy
	cut     []bool
	procs   []*testenv.Process
}

// findJava returns the path of the program java, or an error that names the missing package.
func findJava() (java string, err error) {
	if java, err = exec.LookPath("java"); err != nil {
		return "", errors.New("find java: not on the PATH")
	}
	if _, err := os.Stat(debianJar); err != nil {
		return "", fmt.Errorf("find ZooKeeper: %s does not exist", debianJar)
	}
	return java, nil
}

func openProcessBackend(cfg Config) (Servers, error) {
	java, err := findJava()
	if err != nil {
		return nil, err
	}
	b := &processBackend{
		cfg: cfg, java: java, cut: make([]bool, cfg.Servers), procs: make([]*testenv.Process, cfg.Servers),
	}
	if err := b.prepareServers(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// prepareServers reserves the ports, starts the proxies and writes the files of all servers.
func (b *processBackend) prepareServers() (err error) {
	if b.dir, err = testenv.MakeDir("zk-ensemble"); err != nil {
		return err
	}
	kinds := []*[]*testenv.Port{&b.client}
	if b.cfg.Servers > 1 {
		kinds = append(kinds, &b.quorum, &b.election)
	}
	for _, kind := range kinds {
		for range b.cfg.Servers {
			port, err := testenv.ReservePort()
			if err != nil {
				return err
			}
			*kind = append(*kind, port)
		}
	}
	if b.cfg.Servers > 1 {
		if err := b.startProxies(); err != nil {
			return err
		}
	}
	for i := range b.cfg.Servers {
		if err := b.writeConfig(i); err != nil {
			return err
		}
	}
	return nil
}

func (b *processBackend) startProxies() error {
	b.proxies = make([][][]*testenv.Proxy, b.cfg.Servers)
	for from := range b.proxies {
		b.proxies[from] = make([][]*testenv.Proxy, b.cfg.Servers)
		for to := range b.proxies[from] {
			if from == to {
				continue
			}
			for _, cfg := range []testenv.ProxyConfig{
				{Target: loopbackAddr(b.quorum[to].Number), DialTimeout: dialTimeout},
				{Target: loopbackAddr(b.election[to].Number), DialTimeout: dialTimeout, CopyHead: copyGreeting},
			} {
				p, err := testenv.NewProxy(cfg)
				if err != nil {
					return err
				}
				b.proxies[from][to] = append(b.proxies[from][to], p)
			}
		}
	}
	return nil
}

func (b *processBackend) serverDir(i int) string {
	return filepath.Join(b.dir, "server"+strconv.Itoa(i))
}

func (b *processBackend) dataDir(i int) string { return filepath.Join(b.serverDir(i), "data") }

func (b *processBackend) configFile(i int) string { return filepath.Join(b.serverDir(i), "zoo.cfg") }

func (b *processBackend) logFile(i int) string { return filepath.Join(b.serverDir(i), "log") }

func (b *processBackend) writeConfig(i int) error {
	data := b.dataDir(i)
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	var members []Member
	if b.cfg.Servers > 1 {
		for peer := range b.cfg.Servers {
			m := Member{"127.0.0.1", b.quorum[i].Number, b.election[i].Number}
			if peer != i {
				p := b.proxies[i][peer]
				m.QuorumPort, m.ElectionPort = p[0].Port(), p[1].Port()
			}
			members = append(members, m)
		}
	}
	for file, text := range map[string]string{
		filepath.Join(data, "myid"): strconv.Itoa(i+1) + "\n",
		b.configFile(i):             ZooCfg(b.cfg, data, "127.0.0.1", b.client[i].Number, members),
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (b *processBackend) Kind() Backend { return Process }

func (b *processBackend) Ports() []int {
	ports := make([]int, len(b.client))
	for i, p := range b.client {
		ports[i] = p.Number
	}
	return ports
}

func (b *processBackend) Start(_ context.Context, i int) (err error) {
	log, err := os.OpenFile(b.logFile(i), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child process has its own copy of the file
	args := append([]string{"-Dorg.slf4j.simpleLogger.showDateTime=true"}, slices.Concat(JavaFlags, b.cfg.JavaFlags)...)
	args = append(args, "-cp", debianJar+string(filepath.ListSeparator)+debianLogJar,
		mainClass, b.configFile(i))
	cmd := exec.Command(b.java, args...)
	cmd.Dir = b.serverDir(i)
	cmd.Stdout, cmd.Stderr = log, log
	b.procs[i], err = testenv.StartProcess(cmd)
	return err
}

func (b *processBackend) Kill(ctx context.Context, i int) error { return b.procs[i].Kill(ctx) }

func (b *processBackend) Pause(_ context.Context, i int) error { return b.procs[i].Pause() }

func (b *processBackend) Resume(_ context.Context, i int) error { return b.procs[i].Resume() }

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
	for from, row := range b.proxies {
		for to, proxies := range row {
			for _, p := range proxies {
				if b.cut[from] || b.cut[to] {
					p.Cut()
				} else {
					p.Heal()
				}
			}
		}
	}
}

func (b *processBackend) Exited(_ context.Context, i int) bool { return b.procs[i].Ended() }

func (b *processBackend) Log(_ context.Context, i int) string {
	return testenv.LastLinesOf(b.logFile(i))
}

func (b *processBackend) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), StepTimeout)
	defer cancel()
	var errs []error
	for _, p := range b.procs {
		if p != nil {
			errs = append(errs, p.Kill(ctx))
		}
	}
	for _, row := range b.proxies {
		for _, proxies := range row {
			for _, p := range proxies {
				p.Close()
			}
		}
	}
	for _, kind := range [][]*testenv.Port{b.client, b.quorum, b.election} {
		for _, p := range kind {
			p.Release()
		}
	}
	if b.dir != "" {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}

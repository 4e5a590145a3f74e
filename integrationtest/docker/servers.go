package docker

// The backend that runs each server in a Docker container.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"

	"github.com/go-leaderelection/leaderelection/internal/testenv"

	"github.com/go-leaderelection/leaderelection/internal/testenv/ensemble"
)

// Ports inside a container, where nothing else wants them.
const (
	containerClientPort   = 2181
	containerQuorumPort   = 2888
	containerElectionPort = 3888
)

// engineTimeout bounds the question whether a Docker engine is there.
const engineTimeout = 5 * time.Second

// servers runs each server in a container on two networks: one on which
// its client port is published on loopback, and one for the servers among
// themselves, from which a server that is cut off is disconnected.
type servers struct {
	cfg    ensemble.Config
	docker client.APIClient
	image  string

	client []*testenv.Port
	// clientNet and quorumNet are names; a standalone server has no quorumNet.
	clientNet, quorumNet string
	networks             []*testcontainers.DockerNetwork
	// quorumAddrs are fixed, so that a server which comes back from a cut is
	// where its peers look for it.
	quorumAddrs []netip.Addr
	containers  []testcontainers.Container
}

// configureTestcontainers sets what this package relies on, unless the user
// has set it. The library's reaper is a container of an image of its own,
// which cannot be had everywhere; Close and removeStaleContainers do its work. And its
// guess of where published ports are is wrong in a machine that looks like a
// container; here they are on loopback.
var configureTestcontainers = sync.OnceFunc(func() {
	for key, value := range map[string]string{
		"TESTCONTAINERS_RYUK_DISABLED": "true",
		"TESTCONTAINERS_HOST_OVERRIDE": "localhost",
	} {
		if os.Getenv(key) == "" {
			os.Setenv(key, value)
		}
	}
	tclog.SetDefault(tclog.NewNoopLogger())
})

func open(ctx context.Context, cfg ensemble.Config) (ensemble.Servers, error) {
	configureTestcontainers()
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, err
	}
	b := &servers{cfg: cfg, docker: provider.Client()}
	if err := b.prepare(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *servers) prepare(ctx context.Context) error {
	pingCtx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	if _, err := b.docker.Ping(pingCtx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return err
	}
	removeStaleContainers(ctx, b.docker)
	var err error
	if b.image, err = findImage(ctx, b.docker); err != nil {
		return err
	}
	if err := b.makeNetworks(ctx); err != nil {
		return err
	}
	for i := range b.cfg.Servers {
		r, err := testenv.ReservePort()
		if err != nil {
			return err
		}
		b.client = append(b.client, r)
		if err := b.create(ctx, i); err != nil {
			return fmt.Errorf("create container %d: %w", i, err)
		}
	}
	return nil
}

// create makes the container of server i and does not start it.
func (b *servers) create(ctx context.Context, i int) error {
	var members []ensemble.Member
	for _, addr := range b.quorumAddrs {
		members = append(members, ensemble.Member{Host: addr.String(), QuorumPort: containerQuorumPort, ElectionPort: containerElectionPort})
	}
	config := ensemble.ZooCfg(b.cfg, "/data", "", containerClientPort, members)
	// Its own address is gone while it is cut off, and it may be restarted then.
	config += "quorumListenOnAllIPs=true\n"

	port := network.MustParsePort(fmt.Sprintf("%d/tcp", containerClientPort))
	request := testcontainers.ContainerRequest{
		Image:        b.image,
		Networks:     []string{b.clientNet},
		ExposedPorts: []string{port.String()},
		Env: map[string]string{
			"ZOO_MY_ID": strconv.Itoa(i + 1),
			"JVMFLAGS":  strings.Join(ensemble.JavaFlags, " "),
		},
		Labels: map[string]string{ownerLabel: ownerValue()},
		Files: []testcontainers.ContainerFile{{
			Reader: strings.NewReader(config), ContainerFilePath: "/conf/zoo.cfg", FileMode: 0o644,
		}},
		HostConfigModifier: func(host *container.HostConfig) {
			host.PortBindings = network.PortMap{port: {{
				HostIP:   netip.AddrFrom4([4]byte{127, 0, 0, 1}),
				HostPort: strconv.Itoa(b.client[i].Number),
			}}}
		},
	}
	c, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{
		ContainerRequest: request,
		Logger:           tclog.NewNoopLogger(),
	})
	if c != nil && c.GetContainerID() != "" {
		b.containers = append(b.containers, c)
	}
	if err != nil || b.quorumNet == "" {
		return err
	}
	return b.Heal(ctx, i)
}

func (b *servers) Kind() ensemble.Backend { return ensemble.Docker }

func (b *servers) Ports() []int {
	ports := make([]int, len(b.client))
	for i, r := range b.client {
		ports[i] = r.Number
	}
	return ports
}

func (b *servers) id(i int) string { return b.containers[i].GetContainerID() }

func (b *servers) Start(ctx context.Context, i int) error {
	_, err := b.docker.ContainerStart(ctx, b.id(i), client.ContainerStartOptions{})
	return err
}

func (b *servers) Kill(ctx context.Context, i int) error {
	waitCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait := b.docker.ContainerWait(waitCtx, b.id(i), client.ContainerWaitOptions{
		Condition: container.WaitConditionNotRunning,
	})
	_, err := b.docker.ContainerKill(ctx, b.id(i), client.ContainerKillOptions{Signal: "KILL"})
	if err != nil && !b.Exited(ctx, i) {
		return err
	}
	select {
	case <-wait.Result:
		return nil
	case err := <-wait.Error:
		return err
	}
}

func (b *servers) Pause(ctx context.Context, i int) error {
	_, err := b.docker.ContainerPause(ctx, b.id(i), client.ContainerPauseOptions{})
	return err
}

func (b *servers) Resume(ctx context.Context, i int) error {
	_, err := b.docker.ContainerUnpause(ctx, b.id(i), client.ContainerUnpauseOptions{})
	return err
}

func (b *servers) CutOff(ctx context.Context, i int) error {
	_, err := b.docker.NetworkDisconnect(ctx, b.quorumNet, client.NetworkDisconnectOptions{Container: b.id(i)})
	return err
}

func (b *servers) Heal(ctx context.Context, i int) error {
	_, err := b.docker.NetworkConnect(ctx, b.quorumNet, client.NetworkConnectOptions{
		Container: b.id(i),
		EndpointConfig: &network.EndpointSettings{
			IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: b.quorumAddrs[i]},
		},
	})
	return err
}

func (b *servers) Exited(ctx context.Context, i int) bool {
	result, err := b.docker.ContainerInspect(ctx, b.id(i), client.ContainerInspectOptions{})
	return err == nil && !result.Container.State.Running
}

func (b *servers) Log(ctx context.Context, i int) string {
	logs, err := b.containers[i].Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	text, err := io.ReadAll(logs)
	if err != nil {
		return err.Error()
	}
	return testenv.LastLines(string(text))
}

func (b *servers) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*ensemble.StepTimeout)
	defer cancel()
	errs := make([]error, len(b.containers))
	var wg sync.WaitGroup
	for i := range b.containers {
		wg.Go(func() {
			// Forced removal ends the container at once, paused or not.
			_, errs[i] = b.docker.ContainerRemove(ctx, b.id(i), removeAtOnce)
		})
	}
	wg.Wait()
	for _, n := range b.networks {
		errs = append(errs, n.Remove(ctx))
	}
	for _, r := range b.client {
		r.Release()
	}
	errs = append(errs, b.docker.Close())
	return errors.Join(errs...)
}

var removeAtOnce = client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}

// removeStaleContainers removes the containers and networks of processes that
// are gone. It is housekeeping: what cannot be removed stays.
func removeStaleContainers(ctx context.Context, docker client.APIClient) {
	ctx, cancel := context.WithTimeout(ctx, ensemble.StepTimeout)
	defer cancel()
	ours := make(client.Filters).Add("label", ownerLabel)
	containers, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ours})
	if err != nil {
		return
	}
	for _, c := range containers.Items {
		if staleOwner(c.Labels[ownerLabel]) {
			docker.ContainerRemove(ctx, c.ID, removeAtOnce)
		}
	}
	networks, err := docker.NetworkList(ctx, client.NetworkListOptions{Filters: ours})
	if err != nil {
		return
	}
	for _, n := range networks.Items {
		if staleOwner(n.Labels[ownerLabel]) {
			docker.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
		}
	}
}

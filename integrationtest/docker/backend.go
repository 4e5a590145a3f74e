package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
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

// The ports of a server inside its container.
const (
	containerClientPort   = 2181
	containerQuorumPort   = 2888
	containerElectionPort = 3888
)

// engineTimeout is how long a Docker engine may take to answer a ping.
const engineTimeout = 5 * time.Second

// servers runs each server in a container with two networks. Docker publishes the client port on the loopback
// interface through the first network. The second network connects the servers, and CutOff disconnects a server from
// that network.
type servers struct {
	cfg    ensemble.Config
	docker client.APIClient
	image  string

	client []*testenv.Port
	// clientNet and quorumNet are the names of the networks. quorumNet is empty for a standalone
	// server.
	clientNet, quorumNet string
	networks             []*testcontainers.DockerNetwork
	// quorumAddrs are the addresses of the servers in the quorum network. They are fixed, so that CutOff does not
	// change the address of a server.
	quorumAddrs []netip.Addr
	containers  []testcontainers.Container
}

// configureTestcontainers sets environment variables of the library testcontainers, unless the user has set them. The
// reaper of the library runs in a container whose image is not available everywhere; Close and removeStaleContainers
// replace the reaper. On a machine that looks like a container, the library determines a wrong host for the published
// ports, which are on the loopback interface.
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

func openServers(ctx context.Context, cfg ensemble.Config) (ensemble.Servers, error) {
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

// prepare checks that Docker answers, and creates the networks and the containers, but does not start the containers.
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
	if err := b.createNetworks(ctx); err != nil {
		return err
	}
	for i := range b.cfg.Servers {
		r, err := testenv.ReservePort()
		if err != nil {
			return err
		}
		b.client = append(b.client, r)
		if err := b.createContainer(ctx, i); err != nil {
			return fmt.Errorf("create container %d: %w", i, err)
		}
	}
	return nil
}

// createContainer creates the container of server i, without starting it.
func (b *servers) createContainer(ctx context.Context, i int) error {
	var members []ensemble.Member
	for _, addr := range b.quorumAddrs {
		members = append(members, ensemble.Member{Host: addr.String(), QuorumPort: containerQuorumPort, ElectionPort: containerElectionPort})
	}
	config := ensemble.ZooCfg(b.cfg, "/data", "", containerClientPort, members)
	// A server that is cut off has no address in the quorum network, but must be able to listen when it is restarted.
	config += "quorumListenOnAllIPs=true\n"

	port := network.MustParsePort(fmt.Sprintf("%d/tcp", containerClientPort))
	request := testcontainers.ContainerRequest{
		Image:        b.image,
		Networks:     []string{b.clientNet},
		ExposedPorts: []string{port.String()},
		Env: map[string]string{
			"ZOO_MY_ID": strconv.Itoa(i + 1),
			"JVMFLAGS":  strings.Join(slices.Concat(ensemble.JavaFlags, b.cfg.JavaFlags), " "),
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

func (b *servers) containerID(i int) string { return b.containers[i].GetContainerID() }

func (b *servers) Start(ctx context.Context, i int) error {
	_, err := b.docker.ContainerStart(ctx, b.containerID(i), client.ContainerStartOptions{})
	return err
}

func (b *servers) Kill(ctx context.Context, i int) error {
	waitCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait := b.docker.ContainerWait(waitCtx, b.containerID(i), client.ContainerWaitOptions{
		Condition: container.WaitConditionNotRunning,
	})
	_, err := b.docker.ContainerKill(ctx, b.containerID(i), client.ContainerKillOptions{Signal: "KILL"})
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

// Pause freezes the processes of a container. It retries until ctx is done, because on busy machines runc may fail to
// freeze the processes, and leaves retries to its callers (opencontainers/runc, pull request 4388).
func (b *servers) Pause(ctx context.Context, i int) error {
	for {
		_, err := b.docker.ContainerPause(ctx, b.containerID(i), client.ContainerPauseOptions{})
		if err == nil || !strings.Contains(err.Error(), "unable to freeze") {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

func (b *servers) Resume(ctx context.Context, i int) error {
	_, err := b.docker.ContainerUnpause(ctx, b.containerID(i), client.ContainerUnpauseOptions{})
	return err
}

func (b *servers) CutOff(ctx context.Context, i int) error {
	_, err := b.docker.NetworkDisconnect(ctx, b.quorumNet, client.NetworkDisconnectOptions{Container: b.containerID(i)})
	return err
}

func (b *servers) Heal(ctx context.Context, i int) error {
	_, err := b.docker.NetworkConnect(ctx, b.quorumNet, client.NetworkConnectOptions{
		Container: b.containerID(i),
		EndpointConfig: &network.EndpointSettings{
			IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: b.quorumAddrs[i]},
		},
	})
	return err
}

func (b *servers) Exited(ctx context.Context, i int) bool {
	result, err := b.docker.ContainerInspect(ctx, b.containerID(i), client.ContainerInspectOptions{})
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
			// A forced removal also kills a container that is paused.
			_, errs[i] = b.docker.ContainerRemove(ctx, b.containerID(i), forceRemoval)
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

var forceRemoval = client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}

// removeStaleContainers removes the containers and networks that processes have created which do not exist any more.
// It ignores errors.
func removeStaleContainers(ctx context.Context, docker client.APIClient) {
	ctx, cancel := context.WithTimeout(ctx, ensemble.StepTimeout)
	defer cancel()
	ours := make(client.Filters).Add("label", ownerLabel)
	containers, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ours})
	if err != nil {
		return
	}
	for _, c := range containers.Items {
		if isStaleOwner(c.Labels[ownerLabel]) {
			docker.ContainerRemove(ctx, c.ID, forceRemoval)
		}
	}
	networks, err := docker.NetworkList(ctx, client.NetworkListOptions{Filters: ours})
	if err != nil {
		return
	}
	for _, n := range networks.Items {
		if isStaleOwner(n.Labels[ownerLabel]) {
			docker.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
		}
	}
}

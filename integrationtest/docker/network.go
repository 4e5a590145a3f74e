package docker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
)

// firstServerOctet is the last octet of the address of server 0. Docker itself and its gateway use smaller octets.
const firstServerOctet = 10

func (b *servers) createNetworks(ctx context.Context) error {
	clientNet, err := b.createNetwork(ctx)
	if err != nil {
		return err
	}
	b.clientNet = clientNet.Name
	if b.cfg.Servers == 1 {
		return nil
	}
	return b.createQuorumNetwork(ctx)
}

func (b *servers) createNetwork(ctx context.Context, options ...tcnetwork.NetworkCustomizer) (*testcontainers.DockerNetwork, error) {
	options = append(options, tcnetwork.WithLabels(map[string]string{ownerLabel: ownerValue()}))
	n, err := tcnetwork.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("create network: %w", err)
	}
	b.networks = append(b.networks, n)
	return n, nil
}

// createQuorumNetwork creates the network that connects the servers, and determines their addresses. Docker allows
// fixed addresses only in a network with an explicit range. To find a free range, createQuorumNetwork first creates a
// temporary network, whose range Docker chooses. The network is internal, so that Docker does not publish the client
// ports through it: clients must reach a server even if it is cut off from the other servers.
func (b *servers) createQuorumNetwork(ctx context.Context) error {
	const attempts = 5 // retry, because another process may take the range between the two steps
	var errs []error
	for range attempts {
		subnet, err := b.findFreeSubnet(ctx)
		if err != nil {
			return err
		}
		n, err := b.createNetwork(ctx, tcnetwork.WithInternal(), tcnetwork.WithIPAM(&network.IPAM{
			Driver: "default", Config: []network.IPAMConfig{{Subnet: subnet}},
		}))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		b.quorumNet = n.Name
		for i := range b.cfg.Servers {
			octets := subnet.Masked().Addr().As4()
			octets[3] += byte(firstServerOctet + i)
			b.quorumAddrs = append(b.quorumAddrs, netip.AddrFrom4(octets))
		}
		return nil
	}
	return errors.Join(errs...)
}

// findFreeSubnet returns an address range that Docker does not use.
func (b *servers) findFreeSubnet(ctx context.Context) (netip.Prefix, error) {
	n, err := b.createNetwork(ctx)
	if err != nil {
		return netip.Prefix{}, err
	}
	found, inspectErr := b.docker.NetworkInspect(ctx, n.ID, client.NetworkInspectOptions{})
	if err := n.Remove(ctx); err != nil {
		return netip.Prefix{}, err // Close removes the network
	}
	b.networks = b.networks[:len(b.networks)-1]
	if inspectErr != nil {
		return netip.Prefix{}, inspectErr
	}
	for _, c := range found.Network.IPAM.Config {
		if c.Subnet.Addr().Is4() && c.Subnet.Bits() <= 27 {
			return c.Subnet, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("network %s has no suitable range of IPv4 addresses", n.Name)
}

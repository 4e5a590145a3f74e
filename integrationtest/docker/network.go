package docker

// The Docker networks of one ensemble.

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

// firstServerOctet leaves room for the gateway and what Docker itself wants.
const firstServerOctet = 10

func (b *servers) makeNetworks(ctx context.Context) error {
	clientNet, err := b.makeNetwork(ctx)
	if err != nil {
		return err
	}
	b.clientNet = clientNet.Name
	if b.cfg.Servers == 1 {
		return nil
	}
	return b.makeQuorumNetwork(ctx)
}

func (b *servers) makeNetwork(ctx context.Context, options ...tcnetwork.NetworkCustomizer) (*testcontainers.DockerNetwork, error) {
	options = append(options, tcnetwork.WithLabels(map[string]string{ownerLabel: ownerValue()}))
	n, err := tcnetwork.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("create network: %w", err)
	}
	b.networks = append(b.networks, n)
	return n, nil
}

// makeQuorumNetwork makes the network of the servers among themselves, and
// fixes their addresses on it. Docker allows fixed addresses only on a network
// whose range was asked for by name, so a first one, of which Docker chooses
// the range, shows which one is free. It is internal: that keeps Docker from
// publishing client ports through it, which a cut would then take away.
func (b *servers) makeQuorumNetwork(ctx context.Context) error {
	const attempts = 5 // another process may take the range in between
	var errs []error
	for range attempts {
		subnet, err := b.freeSubnet(ctx)
		if err != nil {
			return err
		}
		n, err := b.makeNetwork(ctx, tcnetwork.WithInternal(), tcnetwork.WithIPAM(&network.IPAM{
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

// freeSubnet gives an address range that Docker considers free just now.
func (b *servers) freeSubnet(ctx context.Context) (netip.Prefix, error) {
	n, err := b.makeNetwork(ctx)
	if err != nil {
		return netip.Prefix{}, err
	}
	found, inspectErr := b.docker.NetworkInspect(ctx, n.ID, client.NetworkInspectOptions{})
	if err := n.Remove(ctx); err != nil {
		return netip.Prefix{}, err // it is still listed, for close
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
	return netip.Prefix{}, fmt.Errorf("network %s has no range of IPv4 addresses to use", n.Name)
}

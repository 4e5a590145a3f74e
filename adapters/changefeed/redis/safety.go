package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// checkSafety refuses deployments that can lose acknowledged writes, unless their risks
// were accepted. A setting that the server does not show counts as the server's default.
func (s *Store) checkSafety(ctx context.Context, node *redis.Client) error {
	found := s.checkClient()
	replicas, err := checkReplicas(ctx, node)
	if err != nil {
		return err
	}
	files, err := checkFiles(ctx, node)
	if err != nil {
		return err
	}
	return s.accepted.Check(fmt.Sprintf("redis at %s", node.Options().Addr), append(append(found, replicas...), files...))
}

// failoverAddr is the address in the options of a client that NewFailoverClient has made.
const failoverAddr = "FailoverClient"

// checkClient reports clients that follow a failover to a replica.
func (s *Store) checkClient() []changefeed.UnsafeSetting {
	kind := ""
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		kind = "ClusterClient"
	case *redis.Client:
		if c.Options().Addr == failoverAddr {
			kind = "FailoverClient"
		}
	}
	if kind == "" {
		return nil
	}
	return []changefeed.UnsafeSetting{{
		Name: "the client", Value: kind, Risk: changefeed.RiskFailover,
		Remedy: "use a client of one server without replicas",
	}}
}

// checkReplicas reports replicas, which are sent writes after those are acknowledged.
func checkReplicas(ctx context.Context, node *redis.Client) ([]changefeed.UnsafeSetting, error) {
	role, replicas := "", ""
	answer, err := node.Do(ctx, "ROLE").Slice()
	switch {
	case err == nil && len(answer) >= 3:
		role = fmt.Sprint(answer[0])
		if list, ok := answer[2].([]any); ok && len(list) > 0 {
			replicas = fmt.Sprint(len(list))
		}
	case err == nil && len(answer) > 0:
		role = fmt.Sprint(answer[0])
	case err != nil && !denied(err):
		return nil, err
	default:
		info, err := section(ctx, node, "replication")
		if err != nil {
			return nil, err
		}
		role, replicas = info["role"], strings.TrimPrefix(info["connected_slaves"], "0")
	}
	if role != "" && role != "master" {
		return nil, fmt.Errorf("%w: redis: %s is a %s; use a client of the master", changefeed.ErrUnsuitable, node.Options().Addr, role)
	}
	if replicas == "" {
		return nil, nil
	}
	return []changefeed.UnsafeSetting{{
		Name: "the number of replicas", Value: replicas, Risk: changefeed.RiskFailover,
		Remedy: "use a server without replicas",
	}}, nil
}

// checkFiles reports settings with which the server's files lack acknowledged writes.
func checkFiles(ctx context.Context, node *redis.Client) ([]changefeed.UnsafeSetting, error) {
	appendOnly, err := setting(ctx, node, "appendonly")
	if err != nil {
		return nil, err
	}
	if appendOnly == unknown { // INFO has it too, which more users may call
		info, err := section(ctx, node, "persistence")
		if err != nil {
			return nil, err
		}
		switch info["aof_enabled"] {
		case "1":
			appendOnly = "yes"
		case "0":
			appendOnly = "no"
		}
	}
	if appendOnly != "yes" {
		save, err := setting(ctx, node, "save")
		if err != nil || save == "" { // the server keeps nothing, which is safe: see the package's documentation
			return nil, err
		}
		return []changefeed.UnsafeSetting{{
			Name: "save", Value: save, Risk: changefeed.RiskRestart,
			Remedy: fmt.Sprintf("appendonly is %q; set appendonly to yes and appendfsync to always, or let the user read the settings by CONFIG GET", appendOnly),
		}}, nil
	}
	for _, s := range []struct{ name, safe, standard string }{
		{"appendfsync", "always", "everysec"},
		{"no-appendfsync-on-rewrite", "no", "no"},
	} {
		value, err := setting(ctx, node, s.name)
		if err != nil {
			return nil, err
		}
		if value == unknown && s.standard == s.safe || value == s.safe {
			continue
		}
		return []changefeed.UnsafeSetting{{
			Name: s.name, Value: value, Risk: changefeed.RiskPowerLoss,
			Remedy: fmt.Sprintf("set it to %s, or let the user read it by CONFIG GET", s.safe),
		}}, nil
	}
	return nil, nil
}

// unknown is the value of a setting that the server does not show.
const unknown = "unknown"

// setting returns a value of the server's configuration, or unknown.
func setting(ctx context.Context, node *redis.Client, name string) (string, error) {
	all, err := node.ConfigGet(ctx, name).Result()
	if err != nil && !denied(err) {
		return "", err
	}
	if value, ok := all[name]; ok {
		return value, nil
	}
	return unknown, nil
}

// section returns the fields of a section of INFO, none if the user may not see it.
func section(ctx context.Context, node *redis.Client, name string) (map[string]string, error) {
	text, err := node.Info(ctx, name).Result()
	if err != nil && !denied(err) {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields, nil
}

// denied reports whether the server has refused a command for good: the user may not call
// it, or a managed service does not have it. Errors with other codes, such as LOADING, end.
func denied(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && (strings.HasPrefix(answer.Error(), "NOPERM") || strings.HasPrefix(answer.Error(), "ERR"))
}

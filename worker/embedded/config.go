package embedded

import (
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
)

// The server detects the visibility features by the name of the plugin, so the visibility store uses the original plugin. Both are the same
// database.
const (
	storeName      = "sqlite"
	visibilityName = "sqlite-visibility"
)

// Sizes in bytes of one payload: above the first the server warns, above the second it refuses.
const (
	WarnBlob = 64 << 10
	MaxBlob  = 512 << 10
)

// taskAckInterval is how long a completed task stays in its queue. Each time a task is added, the server scans all tasks in the queue. With
// its default of half a minute, that is a tenth of its work while it starts 45 workflows a second.
const taskAckInterval = 2 * time.Second

// serverConfig is a cluster of one host with one shard, since SQLite writes one transaction at a time anyway.
func (p ports) serverConfig(db *database) (*config.Config, map[primitives.ServiceName]static.Hosts) {
	services := map[string]config.Service{}
	hosts := map[primitives.ServiceName]static.Hosts{}
	for name, port := range map[primitives.ServiceName]port{
		primitives.FrontendService: p.frontend,
		primitives.HistoryService:  p.history,
		primitives.MatchingService: p.matching,
		primitives.WorkerService:   p.worker,
	} {
		services[string(name)] = config.Service{RPC: config.RPC{BindOnIP: loopback, GRPCPort: port.number}}
		hosts[name] = static.SingleLocalHost(port.address())
	}
	const disabled = "disabled"
	return &config.Config{
		Global: config.Global{Membership: config.Membership{BroadcastAddress: loopback}},
		Persistence: config.Persistence{
			DefaultStore:     storeName,
			VisibilityStore:  visibilityName,
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{storeName: {SQL: db.main()}, visibilityName: {SQL: db.sql}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: p.frontend.address()},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            services,
		Archival: config.Archival{
			History:    config.HistoryArchival{State: disabled},
			Visibility: config.VisibilityArchival{State: disabled},
		},
		PublicClient: config.PublicClient{HostPort: p.frontend.address()},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: disabled},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: disabled},
		}},
	}, hosts
}

// settings are the server's dynamic configuration. The values are stored in the form that the server expects, because it caches its
// conversion of a value by the slice that it received.
type settings struct {
	values map[dynamicconfig.Key][]dynamicconfig.ConstrainedValue
}

func newSettings() *settings {
	s := &settings{values: map[dynamicconfig.Key][]dynamicconfig.ConstrainedValue{}}
	// The defaults of 20 polls a second per shard are meant for thousands of shards; with one they add up to 50 ms to each hop.
	s.set(dynamicconfig.TransferProcessorMaxPollRPS.Key(), 1000)
	s.set(dynamicconfig.TimerProcessorMaxPollRPS.Key(), 1000)
	s.set(dynamicconfig.TransferProcessorUpdateAckInterval.Key(), taskAckInterval)
	s.set(dynamicconfig.VisibilityProcessorUpdateAckInterval.Key(), taskAckInterval)
	// Limits that protect a shared database and a shared frontend: here there is one user.
	s.set(dynamicconfig.FrontendPersistenceMaxQPS.Key(), 10000)
	s.set(dynamicconfig.HistoryPersistenceMaxQPS.Key(), 45000)
	s.set(dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(), 100)
	// A cache for as many active workflows as a laptop has, a sixteenth of the default for a cluster's host.
	s.set(dynamicconfig.HistoryCacheHostLevelMaxSize.Key(), 8192)
	// A payload that a production server refuses is refused here too. A server warns from 512 KiB on and accepts 2 MiB. No payload of ours
	// exceeds 64 KiB, but a user may send a larger one and must get the error.
	s.set(dynamicconfig.BlobSizeLimitWarn.Key(), WarnBlob)
	s.set(dynamicconfig.BlobSizeLimitError.Key(), MaxBlob)
	// The server would query its vendor for newer versions.
	s.set(dynamicconfig.EnableServerVersionCheck.Key(), false)
	return s
}

func (s *settings) set(key dynamicconfig.Key, value any) {
	s.values[key] = []dynamicconfig.ConstrainedValue{{Value: value}}
}

// GetValue implements dynamicconfig.Client.
func (s *settings) GetValue(key dynamicconfig.Key) []dynamicconfig.ConstrainedValue {
	return s.values[key]
}

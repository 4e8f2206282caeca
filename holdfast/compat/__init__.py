"""Names that users of other schedulers know, over the engine's own parts. No rules and no SQL of its own.

schedules   ScheduleSpec, TriggerSpec, parse_schedules_yaml, signatures of webhook bodies
scheduler   SchedulerConfig, SchedulerService, JobSink, TriggerFire
jobs        WorkflowJob
serving     McpHttpConfig, serve
"""

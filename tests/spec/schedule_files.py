"""Schedule files that several tests read."""

from __future__ import annotations

from typing import Final

NIGHTLY_AND_UPLOAD: Final = """\
schedules:
  - id: nightly_cleanup
    workflow: scene_cleanup
    inputs:
      scope: all-scenes
    trigger:
      kind: cron
      expression: "0 0 3 * * *"
      timezone: UTC
      jitter_secs: 120
    enabled: true
    max_concurrent: 1

  - id: on_upload
    workflow: validate_upload
    inputs:
      path: "{{trigger.payload.file_path}}"
    trigger:
      kind: webhook
      path: /webhooks/upload
      secret_env: UPLOAD_WEBHOOK_SECRET
    enabled: true
"""
